//! One API server process: how it uses the library. This is the part to copy from.

use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd as _;

use shmstats::{Server, StatLogger, llm};

use crate::engine::{self, Client, Step};
use crate::model::Stats;
use crate::options::Options;
use crate::{Fallible, http, processes};

/// Serves until SIGTERM or SIGINT, then finishes the requests it has.
pub(crate) async fn serve(options: &Options) -> Fallible<()> {
    let stop = processes::termination()?;
    options.launcher.map_or(Ok(()), processes::end_with)?;
    let schema = llm::schema(options.engines)?;
    // Finds the region that the launcher made. Without one it warns and keeps its own account:
    // serving always starts.
    let server = Server::from_env(&schema);
    let recorder = llm::Recorder::new(&server)?;
    // Every server runs the logger; the one that is primary logs for all.
    let logger = StatLogger::builder(&server)
        .interval(options.interval)
        .line(llm::LlmLine::default())
        .spawn()?;

    // Started by hand there is no launcher to have made them.
    let owner = options.launcher.unwrap_or(std::process::id());
    let engines = processes::engine_names(owner, options.engines);
    let listener = match options.launcher {
        Some(_) => inherited_listener()?,
        None => {
            for name in &engines {
                tokio::spawn(engine::serve(engine::listen(name)?, options.speed));
            }
            crate::bind(options.port)?
        }
    };
    let mut clients = Vec::new();
    for (engine, name) in (0..).zip(&engines) {
        let recorder = recorder.clone();
        clients.push(Client::connect(name, count(engine, recorder))?);
    }

    http::serve(listener, clients, stop).await?;
    // Publishes the last partial interval.
    logger.stop();
    Ok(())
}

/// Counts what a step did for this server's requests, and passes on the engine's state if it was
/// this server that was told.
fn count(engine: usize, recorder: llm::Recorder) -> impl FnMut(&Step) + Send + 'static {
    move |step| {
        let mut done = llm::IterationStats::default();
        for output in &step.outputs {
            done.generation_tokens += 1;
            if let Some(prompt) = output.prompt {
                done.prompt_tokens += prompt.tokens;
                done.prompt_tokens_computed += prompt.tokens - prompt.cached;
                done.prefix_cache.requests += 1;
                done.prefix_cache.queries += prompt.tokens;
                done.prefix_cache.hits += prompt.cached;
            }
        }
        let state = step.stats.map(|Stats { running, waiting, kv_cache_usage }| {
            llm::SchedulerStats { running, waiting, kv_cache_usage, ..Default::default() }
        });
        recorder.record_at(engine, step.time, state.as_ref(), Some(&done));
    }
}

/// The launcher's listener, shared by all its servers: a killed server takes along the requests
/// that it had accepted and no others. (Under SO_REUSEPORT each has a queue of its own.)
fn inherited_listener() -> io::Result<TcpListener> {
    Ok(TcpListener::from(io::stdin().as_fd().try_clone_to_owned()?))
}
