//! `shmstats export`

mod http;
mod scrape;

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::ValueEnum;
use shmstats::prometheus::{Format, Options};

use crate::fail::{Failure, end_on_signals};
use crate::find;

use self::scrape::Exporter;

/// Serves regions as Prometheus and OpenMetrics text, or prints them once.
///
/// Each PATH is a region's file or a folder. Folders are looked through at each scrape, so the
/// exporter can be started before the first region is there. A file that cannot be read is skipped,
/// counted in shmstats_regions_skipped and named on stderr once.
///
/// A region named as the only PATH has no shm_region label. Regions of one folder have their file's
/// name there, without .shmstats; with several PATHs it is the path as given.
///
/// Counters are totals and have a server label, which is the slot's number; so do gauges of
/// servers. Gauges of shared things, such as engines, have none. A region that nobody is attached to has
/// counters and no gauges.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Regions' files and folders; SHMSTATS_DIR, else /dev/shm, if left out
    #[arg(value_name = "PATH|DIR")]
    paths: Vec<PathBuf>,
    /// Where to serve /metrics; port 0 takes a free one, which is printed
    #[arg(long, default_value = "127.0.0.1:9753", value_name = "ADDRESS:PORT")]
    listen: SocketAddr,
    /// Print the metrics once and end
    #[arg(long, conflicts_with = "listen")]
    once: bool,
    /// One sample over all servers instead of one for each
    #[arg(long)]
    sum: bool,
    /// The text format of --once; served ones are what the scraper asks for
    #[arg(long, default_value = "text", requires = "once")]
    format: FormatArg,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FormatArg {
    /// Prometheus text, version 0.0.4
    Text,
    /// OpenMetrics text, version 1.0.0
    Openmetrics,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut paths = args.paths.clone();
    if paths.is_empty() {
        paths.push(find::folder(None));
    }
    let mut exporter = Exporter::new(paths, Options::default().sum(args.sum));
    if !args.once {
        end_on_signals()?;
        return http::serve(exporter, args.listen);
    }
    let format = match args.format {
        FormatArg::Text => Format::Text,
        FormatArg::Openmetrics => Format::OpenMetrics,
    };
    // Asked for by name, and once: what cannot be read is an error here.
    exporter.check_named()?;
    let text = exporter.scrape(format);
    std::io::stdout().lock().write_all(&text)?;
    Ok(())
}
