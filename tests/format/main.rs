//! The file format from outside: the golden file, and files that are broken or hostile. Where a
//! field lies is taken from docs/format.md, not from the library.
#![cfg(target_endian = "little")]

mod doc;
mod entries;
mod fields;
mod golden;
mod hostile;
mod image;
mod kinds;
mod programs;
mod sample;

use shmstats::schema;
