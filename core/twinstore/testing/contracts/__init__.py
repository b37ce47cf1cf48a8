"""The cases, by subject: one mixin class per Protocol."""
