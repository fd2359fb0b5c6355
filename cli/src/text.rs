//! Text for people: times, sizes, tables, and nothing that a terminal would obey.

use std::io::{self, IsTerminal};
use std::time::Duration;

/// The text with control characters, and those that change the direction of writing, spelled out.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        let escaped = c.escape_debug();
        if escaped.len() > 2 || c.is_control() {
            shown.extend(escaped);
        } else {
            shown.push(c);
        }
    }
    shown
}

/// As [`printable`], for messages that come in one line.
pub(crate) fn one_line(text: &str) -> String {
    printable(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// `12 s`, `3 min 4 s`, `2 h 5 min`, `3 d 1 h`; below ten seconds with one decimal.
pub(crate) fn age(age: Duration) -> String {
    let s = age.as_secs();
    match s {
        0..10 => format!("{:.1} s", age.as_secs_f64()),
        10..60 => format!("{s} s"),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        3600..86400 => format!("{} h {} min", s / 3600, s % 3600 / 60),
        _ => format!("{} d {} h", s / 86400, s % 86400 / 3600),
    }
}

/// `never` for nothing.
pub(crate) fn ago(then: Option<Duration>) -> String {
    then.map_or("never".into(), |then| format!("{} ago", age(then)))
}

/// Bytes with a binary unit.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.1} GiB", bytes as f64 / 1_073_741_824.0),
    }
}

/// A number of any size in at most seven places: `0.5`, `12.3`, `1234`, `56.7k`, `8.9M`.
pub(crate) fn short(value: f64) -> String {
    let size = value.abs();
    let scaled = |by: f64, unit: &str| format!("{:.1}{unit}", value / by);
    match size {
        _ if !value.is_finite() => value.to_string(),
        _ if size >= 1e15 => format!("{value:.1e}"),
        _ if size >= 1e12 => scaled(1e12, "T"),
        _ if size >= 1e9 => scaled(1e9, "G"),
        _ if size >= 1e6 => scaled(1e6, "M"),
        _ if size >= 1e4 => scaled(1e3, "k"),
        _ if value.fract() == 0.0 => format!("{value:.0}"),
        _ if size >= 100.0 => format!("{value:.0}"),
        _ if size >= 1.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// A name of words joined by `_`, made to fit by shortening its longest words.
pub(crate) fn abbreviate(name: &str, width: usize) -> String {
    let mut words: Vec<&str> = name.split('_').collect();
    let mut len = name.len();
    while len > width {
        // Of several longest the last one. Names are ASCII, so bytes are characters.
        match words.iter_mut().max_by_key(|word| word.len()) {
            Some(longest) if longest.len() > 1 => *longest = &longest[..longest.len() - 1],
            _ => break,
        }
        len -= 1;
    }
    let mut short = words.join("_");
    short.truncate(width);
    short
}

/// Seconds since the Unix epoch as `2026-01-31 23:59:59 UTC`.
pub(crate) fn utc(since_epoch: Duration) -> String {
    let s = since_epoch.as_secs();
    let (days, s) = ((s / 86400) as i64, s % 86400);
    // Days to a date by eras of 400 years that begin on 1 March, as in Howard Hinnant's
    // "chrono-compatible low-level date algorithms".
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (h, m, s) = (s / 3600, s % 3600 / 60, s % 60);
    format!("{year:04}-{month:02}-{day:02} {h:02}:{m:02}:{s:02} UTC")
}

/// Rows under a head; the columns of `left` are set to the left, numbers to the right.
pub(crate) fn table(head: &[&str], left: &[usize], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row.get(column).map_or(0, |cell| cell.chars().count()));
        cells.chain([head[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let mut line = String::new();
        for (column, cell) in cells.iter().enumerate() {
            let pad = " ".repeat(widths[column] - cell.chars().count());
            let gap = if column == 0 { "" } else { "  " };
            line += gap;
            if left.contains(&column) {
                line += cell;
                line += &pad;
            } else {
                line += &pad;
                line += cell;
            }
        }
        line.trim_end().to_string() + "\n"
    };
    let mut text = line(head.to_vec());
    for row in rows {
        text += &line(row.iter().map(String::as_str).collect());
    }
    text
}

/// Whether stdout takes colours: a terminal, and nobody said no (no-color.org).
pub(crate) fn colours() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stdout().is_terminal() && !refused
}

/// Parses `10s`, `500ms`, `1m`, `2h`; a bare number is seconds.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let scale = match text[digits..].trim() {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => f64::NAN,
    };
    let seconds = text[..digits].parse::<f64>().unwrap_or(f64::NAN) * scale;
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if duration >= Duration::from_millis(1) => Ok(duration),
        _ => Err("expected a time of at least 1ms, like 10s, 500ms or 1m".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_is_printed() {
        assert_eq!(printable("größe \"x\""), "größe \"x\"");
        assert_eq!(printable("a\x1b[2Jb\nc\u{202e}d\u{9b}"), "a\\u{1b}[2Jb\\nc\\u{202e}d\\u{9b}");
        assert_eq!(one_line("two\n  lines"), "two lines");
    }

    #[test]
    fn times_and_sizes() {
        assert_eq!(age(Duration::from_millis(1250)), "1.2 s");
        assert_eq!(age(Duration::from_secs(40)), "40 s");
        assert_eq!(age(Duration::from_secs(125)), "2 min 5 s");
        assert_eq!(age(Duration::from_secs(7500)), "2 h 5 min");
        assert_eq!(age(Duration::from_secs(90_000)), "1 d 1 h");
        assert_eq!(size(69_632), "68.0 KiB");
        assert_eq!(utc(Duration::from_secs(0)), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(Duration::from_secs(951_782_399)), "2000-02-28 23:59:59 UTC");
        assert_eq!(utc(Duration::from_secs(951_782_400)), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(Duration::from_secs(4_107_542_400)), "2100-03-01 00:00:00 UTC");
    }

    #[test]
    fn numbers_are_short() {
        let all = [0.0, 0.5, 12.34, 1234.0, 56_700.0, 8.9e6, 1.8e19, -3.0];
        let shown = ["0", "0.500", "12.3", "1234", "56.7k", "8.9M", "1.8e19", "-3"];
        assert_eq!(all.map(short), shown);
    }

    #[test]
    fn names_are_cut_where_they_are_longest() {
        assert_eq!(abbreviate("prompt_tokens", 13), "prompt_tokens");
        assert_eq!(abbreviate("generation_tokens", 12), "genera_token");
        assert_eq!(abbreviate("prompt_tokens_computed", 12), "prom_tok_com");
        assert_eq!(abbreviate("a_b_c_d", 4), "a_b_");
        assert_eq!(abbreviate("", 4), "");
    }

    #[test]
    fn durations_are_parsed_and_nonsense_is_not() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("10"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_duration("1.5m"), Ok(Duration::from_secs(90)));
        for bad in
            ["", "0", "0s", "0.1ms", "-1s", "s", "1 fortnight", "1e400", "9999999999999999999999h"]
        {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn tables_line_up() {
        let rows = vec![vec!["a".into(), "1".into()], vec!["long".into(), "1000".into()]];
        assert_eq!(table(&["NAME", "N"], &[0], &rows), "NAME     N\na        1\nlong  1000\n");
    }
}
