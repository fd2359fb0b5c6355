//! `/metrics` over HTTP: a few connections at a time, each with one request and a time limit.

use std::convert::Infallible;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use shmstats::prometheus::Format;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::scrape::Exporter;
use crate::fail::{Failure, say};

/// Connections at a time; more wait in the listener's queue.
const CONNECTIONS: usize = 32;
/// How long a client may take to ask.
const ASKING: Duration = Duration::from_secs(5);
/// How long a connection may last in all.
const LASTING: Duration = Duration::from_secs(60);

pub(super) fn serve(exporter: Exporter, address: SocketAddr) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let cannot = |e| Failure::Bad(format!("cannot listen on {address}: {e}"));
        let listener = TcpListener::bind(address).await.map_err(cannot)?;
        let address = listener.local_addr()?;
        writeln!(std::io::stdout(), "serving http://{address}/metrics")?;
        if !address.ip().is_loopback() {
            say("whoever reaches this address can read the metrics: there is no password");
        }
        accept(listener, exporter).await
    })
}

async fn accept(listener: TcpListener, exporter: Exporter) -> Result<(), Failure> {
    let exporter = Arc::new(Mutex::new(exporter));
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return Ok(()) };
        match listener.accept().await {
            Ok((stream, _)) => {
                let exporter = Arc::clone(&exporter);
                tokio::spawn(async move {
                    one_connection(stream, exporter).await;
                    drop(place);
                });
            }
            // Out of descriptors, or a client that was gone again: the next one may do better.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn one_connection(stream: TcpStream, exporter: Arc<Mutex<Exporter>>) {
    let answer = service_fn(move |request: Request<Incoming>| {
        let exporter = Arc::clone(&exporter);
        async move { Ok::<_, Infallible>(answer(&request, &exporter)) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(ASKING)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answer);
    // What goes wrong with a connection is its client's business.
    let _ = tokio::time::timeout(LASTING, connection).await;
}

fn answer(request: &Request<Incoming>, exporter: &Mutex<Exporter>) -> Response<Full<Bytes>> {
    let plain = |status, text: &'static str| {
        response(status, "text/plain; charset=utf-8", text.as_bytes().to_vec())
    };
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "expected GET or HEAD\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match request.uri().path() {
        "/metrics" => {
            let accepted = request.headers().get_all(ACCEPT).iter();
            let accepted: Vec<&str> = accepted.filter_map(|value| value.to_str().ok()).collect();
            let format = Format::negotiate(&accepted.join(","));
            // Nothing waits in here: a scrape reads memory and a few files.
            let mut exporter = exporter.lock().unwrap_or_else(PoisonError::into_inner);
            response(StatusCode::OK, format.content_type(), exporter.scrape(format))
        }
        "/" => plain(StatusCode::OK, "shmstats: the metrics are at /metrics\n"),
        _ => plain(StatusCode::NOT_FOUND, "not found; the metrics are at /metrics\n"),
    }
}

fn response(status: StatusCode, kind: &'static str, body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
