//! Several API server processes behind one port, and one log line for all of them.
//!
//! ```text
//! cargo run --release --example api_servers -- --help
//! ```
//!
//! ```text
//!   load ── HTTP, one port ──▶ API server 0 … N-1 ── Unix sockets ──▶ engine 0 … E-1
//!                                      │ each counts in its own slot
//!                                      ▼
//!                                   region ──▶ whichever is primary logs one line for all
//! ```
//!
//! Servers and engines are processes. This file is the launcher: it makes the region, starts the
//! others, and at the end compares what its clients were told with what the region says.
//! `server.rs` is the part to copy from; `engine.rs` and `model.rs` stand in for what a real server
//! has behind it.

mod accounts;
mod engine;
mod http;
mod load;
mod model;
mod options;
mod processes;
mod server;

use std::error::Error;
use std::future::Future;
use std::io::{self, IsTerminal as _};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixListener;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser as _;
use shmstats::{Region, llm, region};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{Metadata, error, info};
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::fmt::{self, format::debug_fn};
use tracing_subscriber::prelude::*;

use crate::options::{Options, Role};
use crate::processes::Engines;

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// How long requests under way may take once no more are sent, and connections once a server has
/// been told to stop.
const PATIENCE: Duration = Duration::from_secs(60);
/// Requests per second that keep an engine of the default speed just busy.
const RATE_OF_AN_ENGINE: f64 = 65.0;

fn main() -> ExitCode {
    let options = Options::parse();
    start_logging();
    let done = match options.role {
        Role::Launcher => launch(&options),
        Role::Server => run(server::serve(&options)),
        Role::Engine => run(serve_engine(&options)),
    };
    done.unwrap_or_else(|error| {
        error!("{error}");
        ExitCode::from(2)
    })
}

/// The library logs its line with all its numbers as fields beside the message. They are for log
/// files that programs read; here people do, so they are left out, and only they.
fn start_logging() {
    let is_line = |event: &Metadata<'_>| event.target().starts_with("shmstats::llm");
    let message_only = debug_fn(|out, field, value| match field.name() {
        "message" => write!(out, "{value:?}"),
        _ => Ok(()),
    });
    let ansi = io::stderr().is_terminal();
    let layer = || fmt::layer().with_writer(io::stderr).with_ansi(ansi).with_target(false);
    tracing_subscriber::registry()
        .with(LevelFilter::INFO)
        .with(vec![
            layer().fmt_fields(message_only).with_filter(filter_fn(is_line)).boxed(),
            layer().with_filter(filter_fn(move |event| !is_line(event))).boxed(),
        ])
        .init();
}

/// One thread is enough for a server process; more throughput means more processes.
fn run(role: impl Future<Output = Fallible<()>>) -> Fallible<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(role).map(|()| ExitCode::SUCCESS)
}

async fn serve_engine(options: &Options) -> Fallible<()> {
    options.launcher.map_or(Ok(()), processes::end_with)?;
    let listener = UnixListener::from(io::stdin().as_fd().try_clone_to_owned()?);
    Ok(engine::serve(listener, options.speed).await?)
}

fn launch(options: &Options) -> Fallible<ExitCode> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    // From here on Ctrl-C is an event and no longer the end.
    let stop = runtime.block_on(async { processes::termination().map(tokio::spawn) })?;
    // Bound here and inherited by each server: one queue for all, and "port in use" is found out
    // before anything has started.
    let listener = bind(options.port)?;
    let path = options
        .region
        .clone()
        .unwrap_or_else(|| region::default_path(&format!("api_servers-{}", std::process::id())));
    let schema = llm::schema(options.engines)?;
    let region = Region::create(path, &schema, options.api_server_count)?;

    let agree = serve_all(options, &runtime, &stop, listener, &region);
    let removed = region.remove();
    let agree = agree?;
    removed?;
    Ok(if agree { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Starts and stops everything that needs the region. True if the clients and the region agree.
fn serve_all(
    options: &Options,
    runtime: &Runtime,
    stop: &JoinHandle<()>,
    listener: TcpListener,
    region: &Region,
) -> Fallible<bool> {
    let address = listener.local_addr()?;
    let mut engines = Engines::start(options.engines)?;
    let mut servers = processes::start_servers(options, region.path(), listener)?;
    let pids: Vec<String> = servers.pids().iter().flatten().map(u32::to_string).collect();
    info!("Serving on http://{address}, API servers have the pids {}", pids.join(" "));

    let rate = options.rate.unwrap_or(RATE_OF_AN_ENGINE * f64::from(options.engines));
    let (sending, may_send) = watch::channel(true);
    let load = (!options.no_load).then(|| runtime.spawn(load::run(address, rate, may_send)));
    let mut is_well = || engines.death().is_none() && processes::are_well(&mut servers);

    // Runs until something ends it: the time, a signal, or a death that is not made good.
    let timed = !options.no_load && !options.duration.is_zero();
    let end = timed.then(|| Instant::now() + options.duration);
    let mut well = true;
    while well && !stop.is_finished() && end.is_none_or(|end| Instant::now() < end) {
        well = is_well();
    }

    // Requests under way are answered, then the servers stop, and only then the engines.
    info!("Stopping: requests under way have up to {} s to finish", PATIENCE.as_secs());
    sending.send_replace(false);
    let end = Instant::now() + PATIENCE;
    while well && load.as_ref().is_some_and(|load| !load.is_finished()) && Instant::now() < end {
        well = is_well();
    }
    servers.stop().iter().for_each(processes::report);
    // Closes the port, so that whoever still waits to be accepted is refused.
    drop(servers);

    let mut inspector = region.inspector()?;
    let tally = load.map(|load| runtime.block_on(load)).transpose()?;
    let agree = accounts::settle(tally.as_ref(), inspector.totals())?;
    match engines.death() {
        Some(death) => Err(death.into()),
        None => Ok(agree),
    }
}

fn bind(port: u16) -> Fallible<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .map_err(|error| format!("cannot listen on 127.0.0.1:{port}: {error} (see --port)").into())
}
