"""Teachers: the Vision Transformers under study."""
