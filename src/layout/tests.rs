//! docs/format.md against the code, the golden file, and layout arithmetic for any schema.

#[path = "../../tests/format/doc.rs"]
mod doc;
mod document;
mod golden;
mod properties;
#[path = "../../tests/format/sample.rs"]
mod sample;

use super::*;
use crate::schema;

const BIRTH: Birth = Birth {
    created_at: 1_700_000_000_000_000_000,
    monotonic: 500,
    boot_id: *b"\x01\x23\x45\x67\x89\xab\xcd\xef\xfe\xdc\xba\x98\x76\x54\x32\x10",
};

/// The layout as a reader finds it in a file that begins with `head`.
fn read(head: &[u8], file_size: usize) -> Result<Layout, Fault> {
    let header = read_header(head, file_size as u64)?;
    Layout::decode(&header, head)
}
