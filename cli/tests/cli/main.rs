//! The command against real regions: of live servers, of killed ones, and of none at all. Nothing
//! is slept for: tests wait for lines and for states, with a limit.

mod errors;
mod export;
mod gc;
mod look;
mod run;
mod steady;
mod support;
