//! Memory and time estimates. Pure: no I/O, no clock, no randomness, and no byte is ever summed in floating point.

pub mod caching;
