//! The rules for names, labels, units and help texts. They are the Prometheus data model's
//! (metric and label names) and OpenMetrics' (reserved endings); what breaks one is refused, never
//! cut or mended.

use crate::error::{Error, Result};

/// Longest record, snapshot or namespace name, in bytes.
pub const MAX_NAME: usize = 128;
/// Longest label value, in bytes.
pub const MAX_LABEL_VALUE: usize = 256;
/// Longest help text, in bytes.
pub const MAX_HELP: usize = 1024;
/// Most labels on one record.
pub const MAX_LABELS: usize = 16;

/// Endings that the exposition formats give a meaning of their own.
const RESERVED_ENDINGS: [&str; 6] = ["_total", "_created", "_bucket", "_sum", "_count", "_info"];
/// Labels that exporters add themselves.
const RESERVED_LABELS: [&str; 4] = ["server", "shm_region", "le", "quantile"];

fn refuse(what: String, expected: &str, found: &str) -> Error {
    // Found text is shown, not trusted: at most 64 characters of it.
    let found: String = found.chars().take(64).collect();
    Error::InvalidSchema { what, expected: expected.into(), found }
}

fn is_identifier(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn identifier(what: &str, text: &str) -> Result<()> {
    if text.len() > MAX_NAME || !is_identifier(text) {
        let expected = "at most 128 bytes of [a-zA-Z0-9_], not beginning with a digit";
        return Err(refuse(what.into(), expected, text));
    }
    Ok(())
}

pub(super) fn namespace(text: &str) -> Result<()> {
    identifier("namespace", text)
}

pub(super) fn snapshot(text: &str) -> Result<()> {
    identifier("snapshot name", text)
}

pub(super) fn record(text: &str) -> Result<()> {
    identifier("record name", text)?;
    match RESERVED_ENDINGS.iter().find(|ending| text.ends_with(**ending)) {
        Some(ending) => Err(refuse(
            "record name".into(),
            &format!("a name without the ending {ending}, which the text formats add themselves"),
            text,
        )),
        None => Ok(()),
    }
}

pub(super) fn unit(text: &str) -> Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    identifier("unit", text)?;
    // It is appended to the exported name, where it would look like one of these.
    match RESERVED_ENDINGS.iter().find(|ending| format!("_{text}").ends_with(**ending)) {
        Some(ending) => Err(refuse(
            "unit".into(),
            &format!("a unit without the ending {ending}, which the text formats add themselves"),
            text,
        )),
        None => Ok(()),
    }
}

pub(super) fn help(record: &str, text: &str) -> Result<()> {
    if text.len() > MAX_HELP || text.chars().any(|c| c.is_control() && c != '\n') {
        let expected = "at most 1024 bytes without control characters other than newline";
        return Err(refuse(format!("help of {record}"), expected, text));
    }
    Ok(())
}

pub(super) fn labels(record: &str, labels: &[(String, String)]) -> Result<()> {
    if labels.len() > MAX_LABELS {
        let found = format!("{} labels", labels.len());
        return Err(refuse(format!("labels of {record}"), "at most 16 labels", &found));
    }
    for (i, (key, value)) in labels.iter().enumerate() {
        identifier(&format!("label of {record}"), key)?;
        if RESERVED_LABELS.contains(&key.as_str()) || key.starts_with("__") {
            let expected = "a label other than server, shm_region, le, quantile and __*";
            return Err(refuse(format!("label of {record}"), expected, key));
        }
        if labels[..i].iter().any(|(other, _)| other == key) {
            return Err(refuse(format!("labels of {record}"), "each label once", key));
        }
        // To Prometheus an empty value is no label at all.
        let len = 1..=MAX_LABEL_VALUE;
        if !len.contains(&value.len()) || value.chars().any(char::is_control) {
            let expected = "1 to 256 bytes without control characters";
            return Err(refuse(format!("value of label {key} of {record}"), expected, value));
        }
    }
    Ok(())
}
