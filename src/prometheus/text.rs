//! Families as text, in both formats.
//!
//! A writer of our own and not `prometheus_client`'s, which has no `_created` and leaves line ends
//! in help texts as they are.

use std::borrow::Cow;
use std::io::{self, Write};

use super::Format;
use super::family::{Families, Family, FamilyKind, Group, Sample};
use crate::value::Value;

pub(super) fn write(
    families: &Families,
    format: Format,
    out: &mut impl io::Write,
) -> io::Result<()> {
    let mut text = Vec::new();
    for family in families.iter() {
        text.clear();
        one(family, format, &mut text);
        out.write_all(&text)?;
    }
    if format == Format::OpenMetrics {
        out.write_all(b"# EOF\n")?;
    }
    Ok(())
}

fn one(family: &Family, format: Format, text: &mut Vec<u8>) {
    let open_metrics = format == Format::OpenMetrics;
    let (kind, suffix) = match family.kind {
        FamilyKind::Counter => ("counter", "_total"),
        FamilyKind::Gauge => ("gauge", ""),
    };
    let name = &family.name;
    // OpenMetrics describes the family, the older format each sample's name.
    let described = if open_metrics { "" } else { suffix };
    let help = escaped(&family.help, open_metrics);
    let _ = write!(text, "# HELP {name}{described} {help}\n# TYPE {name}{described} {kind}\n");
    if open_metrics && !family.unit.is_empty() {
        let _ = writeln!(text, "# UNIT {name} {}", family.unit);
    }
    for group in &family.groups {
        let line = Line::new(group, &format!("{name}{suffix}"));
        // The line of the creation time stands behind each sample's own: OpenMetrics wants what has
        // the same labels together.
        let created = group.created.filter(|_| open_metrics);
        let created =
            created.map(|at| (Line::new(group, &format!("{name}_created")), format!("{at:.3}")));
        for sample in &group.samples {
            line.begin(sample, text);
            number(sample.value, text);
            text.push(b'\n');
            if let Some((line, at)) = &created {
                line.begin(sample, text);
                text.extend_from_slice(at.as_bytes());
                text.push(b'\n');
            }
        }
    }
}

/// What stands before the values of a group's samples. It differs in the number of the server only,
/// and is made once: a scrape can have thousands of lines.
struct Line {
    before_server: Vec<u8>,
    /// Empty where there is no server.
    behind_server: Vec<u8>,
}

impl Line {
    fn new(group: &Group, name: &str) -> Self {
        let mut before = format!("{name}{{").into_bytes();
        // Writing to memory cannot fail, here and below.
        for (key, value) in &group.labels {
            let _ = write!(before, "{key}=\"{}\",", escaped(value, true));
        }
        let mut behind = Vec::new();
        let of_servers = group.samples.first().is_some_and(|sample| sample.server.is_some());
        let last = if of_servers {
            before.extend_from_slice(b"server=\"");
            behind.extend_from_slice(b"\",");
            &mut behind
        } else {
            &mut before
        };
        if let Some(name) = &group.shm_region {
            let _ = write!(last, "shm_region=\"{}\",", escaped(name, true));
        }
        // The last comma, or the brace of no labels.
        let labels = last.pop() == Some(b',');
        last.extend_from_slice(if labels { b"} " } else { b" " });
        Line { before_server: before, behind_server: behind }
    }

    fn begin(&self, sample: &Sample, text: &mut Vec<u8>) {
        text.extend_from_slice(&self.before_server);
        if let Some(server) = sample.server {
            decimal(server as u64, text);
            text.extend_from_slice(&self.behind_server);
        }
    }
}

/// `quotes`: whether quotation marks are escaped, too.
fn escaped(text: &str, quotes: bool) -> Cow<'_, str> {
    if !text.contains(['\\', '\n', '"']) {
        return text.into();
    }
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    if quotes { text.replace('"', "\\\"").into() } else { text.into() }
}

fn number(value: Value, text: &mut Vec<u8>) {
    let _ = match value {
        Value::U64(n) => return decimal(n, text),
        Value::I64(n) => write!(text, "{n}"),
        Value::F64(x) if x.is_nan() => text.write_all(b"NaN"),
        Value::F64(x) if x.is_infinite() => text.write_all(if x > 0.0 { b"+Inf" } else { b"-Inf" }),
        Value::F64(x) if x == 0.0 || (1e-6..1e15).contains(&x.abs()) => write!(text, "{x}"),
        Value::F64(x) => write!(text, "{x:e}"),
    };
}

/// As `write!(text, "{n}")`, which takes as long as all else of a line.
fn decimal(n: u64, text: &mut Vec<u8>) {
    let digit = |n: u64| b'0' + (n % 10) as u8;
    if n < 10 {
        return text.push(digit(n));
    }
    if n < 100 {
        return text.extend_from_slice(&[digit(n / 10), digit(n)]);
    }
    let mut digits = [0; 20];
    let mut first = digits.len();
    let mut rest = n;
    while rest > 0 {
        first -= 1;
        digits[first] = digit(rest);
        rest /= 10;
    }
    text.extend_from_slice(&digits[first..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn families() -> Families {
        let mut families = Families::default();
        let head = Family::new(FamilyKind::Counter, "n_sent", "bytes", "Sent \"now\"\nor \\ later");
        let sent = families.family(0, head).unwrap();
        let labels = vec![("path".into(), "a\"b\\c\nd".into())];
        let samples = vec![Sample { server: Some(0), value: Value::U64(u64::MAX) }];
        families.add(0, sent, Group { labels, shm_region: None, created: Some(1.5), samples });
        families.gauge("n_up", "", 1);
        families
    }

    fn text(format: Format) -> String {
        let mut out = Vec::new();
        write(&families(), format, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn prometheus_text() {
        let expected = r#"# HELP n_sent_bytes_total Sent "now"\nor \\ later
# TYPE n_sent_bytes_total counter
n_sent_bytes_total{path="a\"b\\c\nd",server="0"} 18446744073709551615
# HELP n_up Not described by its schema
# TYPE n_up gauge
n_up 1
"#;
        assert_eq!(text(Format::Text), expected);
    }

    #[test]
    fn open_metrics_text() {
        let expected = r#"# HELP n_sent_bytes Sent \"now\"\nor \\ later
# TYPE n_sent_bytes counter
# UNIT n_sent_bytes bytes
n_sent_bytes_total{path="a\"b\\c\nd",server="0"} 18446744073709551615
n_sent_bytes_created{path="a\"b\\c\nd",server="0"} 1.500
# HELP n_up Not described by its schema
# TYPE n_up gauge
n_up 1
# EOF
"#;
        assert_eq!(text(Format::OpenMetrics), expected);
    }

    #[test]
    fn numbers_that_parsers_know() {
        let text = |value| {
            let mut text = Vec::new();
            number(value, &mut text);
            String::from_utf8(text).unwrap()
        };
        let of = |x| text(Value::F64(x));
        assert_eq!(of(0.0), "0");
        assert_eq!(of(-12.5), "-12.5");
        assert_eq!(of(1e300), "1e300");
        assert_eq!(of(1e-9), "1e-9");
        assert_eq!(of(f64::NEG_INFINITY), "-Inf");
        assert_eq!(of(f64::INFINITY), "+Inf");
        assert_eq!(of(f64::NAN), "NaN");
        assert_eq!(text(Value::I64(-3)), "-3");
        for n in [0, 9, 10, 12_345, u64::MAX] {
            assert_eq!(text(Value::U64(n)), n.to_string());
        }
    }
}
