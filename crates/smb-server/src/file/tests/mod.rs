//! Tests of the engine as a whole; the rules of one module are tested beside it.
