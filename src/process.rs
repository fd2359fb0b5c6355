//! tmp
/// e
pub mod env {
    /// r
    pub const REGION: &str = "SHMSTATS_REGION";
    /// i
    pub const SERVER_INDEX: &str = "SHMSTATS_SERVER_INDEX";
    /// c
    pub const SERVER_COUNT: &str = "SHMSTATS_SERVER_COUNT";
}
