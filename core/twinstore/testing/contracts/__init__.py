"""The cases: one mixin class per Protocol, in one file each."""
