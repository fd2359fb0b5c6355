//! The environment variables by which a launcher tells a server where to count.
//!
//! They are an instruction: a launcher overwrites them for its own children; a wrapper in between
//! may pass them on.

/// The path of the region; not set: there is none.
pub const REGION: &str = "SHMSTATS_REGION";
/// The server's index, counted from 0.
pub const SERVER_INDEX: &str = "SHMSTATS_SERVER_INDEX";
/// How many servers the launcher starts.
pub const SERVER_COUNT: &str = "SHMSTATS_SERVER_COUNT";
