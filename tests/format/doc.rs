//! Reads docs/format.md: a table that code is held to follows a line `<!-- checked: NAME -->`.
//! Used by the library's own tests too, which compare the tables with its constants.

pub(crate) const TEXT: &str = include_str!("../../docs/format.md");

/// A row of a table of offsets.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) offset: String,
    pub(crate) size: String,
    pub(crate) name: String,
}

/// The rows of a table, without its head, as cells without back-quotes.
pub(crate) fn table(name: &str) -> Vec<Vec<String>> {
    let mark = format!("<!-- checked: {name} -->");
    let mut tables = TEXT.split(mark.as_str()).skip(1);
    let table = tables.next().unwrap_or_else(|| panic!("docs/format.md has no table {name}"));
    assert!(tables.next().is_none(), "docs/format.md has two tables {name}");
    let lines = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    let cells = |line: &str| {
        let line = line.trim_matches('|');
        line.split('|').map(|cell| cell.trim().replace('`', "")).collect()
    };
    lines.skip(2).map(cells).collect()
}

/// The rows of a table of offsets.
pub(crate) fn rows(name: &str) -> Vec<Row> {
    let row = |cells: Vec<String>| match &cells[..] {
        [offset, size, name, _meaning] => {
            Row { offset: offset.clone(), size: size.clone(), name: name.clone() }
        }
        other => panic!("table {name}: {other:?}"),
    };
    table(name).into_iter().map(row).collect()
}

/// What an expression such as `8 + 16 × n` or `2^40 + i` comes to.
pub(crate) fn value(expression: &str, variables: &[(&str, u64)]) -> u64 {
    let number = |text: &str| {
        let known = variables.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
        known.or_else(|| text.parse().ok()).unwrap_or_else(|| panic!("{text} in {expression}"))
    };
    let power = |text: &str| match text.split_once('^') {
        Some((base, exponent)) => number(base).pow(number(exponent) as u32),
        None => number(text),
    };
    let product = |text: &str| text.split('×').map(|factor| power(factor.trim())).product::<u64>();
    expression.split('+').map(|term| product(term.trim())).sum()
}
