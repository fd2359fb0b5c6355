//! What the clients were told they used, beside what the region counted.

use std::io::{self, Write as _};

use shmstats::Totals;

use crate::load::{Tally, Tokens};

/// A name in the region and where the clients have the same.
type Field = (&'static str, fn(&Tokens) -> u64);
const FIELDS: [Field; 3] = [
    ("prompt_tokens", |tokens| tokens.prompt),
    ("prompt_tokens_computed", |tokens| tokens.computed),
    ("generation_tokens", |tokens| tokens.generation),
];

/// Prints both and returns whether they agree. Nobody knows what clients other than ours counted.
pub(crate) fn settle(tally: Option<&Tally>, totals: &Totals) -> io::Result<bool> {
    let mut out = io::stdout().lock();
    let Some(tally) = tally else {
        writeln!(out, "{:<24}{:>14}", "", "region")?;
        for (name, _) in FIELDS {
            writeln!(out, "{name:<24}{:>14}", totals.get(name))?;
        }
        return Ok(true);
    };

    let rate = (tally.answered + tally.failed) as f64 / tally.seconds;
    writeln!(
        out,
        "{} requests answered, {} failed, {rate:.1} sent per second",
        tally.answered, tally.failed
    )?;
    if let Some(error) = &tally.first_failure {
        writeln!(out, "the first failure: {error}")?;
    }
    writeln!(out, "{:<24}{:>14}{:>14}{:>14}", "", "clients", "region", "unanswered")?;
    let mut agree = true;
    for (name, of) in FIELDS {
        let (counted, total, unknown) = (of(&tally.counted), totals.get(name), of(&tally.unknown));
        // A server counts before it replies. If it died in between, its client does not know.
        let verdict = match total.checked_sub(counted) {
            Some(0) => "equal".to_owned(),
            Some(more) if more <= unknown => format!("{more} more, of requests that failed"),
            Some(more) => format!("WRONG: {more} too many, {unknown} expected at most"),
            None => format!("WRONG: {} missing", counted - total),
        };
        agree &= !verdict.starts_with("WRONG");
        writeln!(out, "{name:<24}{counted:>14}{total:>14}{unknown:>14}  {verdict}")?;
    }
    Ok(agree)
}
