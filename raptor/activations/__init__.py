"""The store of a teacher's states: `write.extract` fills it, `read.Activations` reads it."""
