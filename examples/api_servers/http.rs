//! The HTTP of an API server: OpenAI's completions, in small.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::sleep;
use tracing::warn;

use crate::engine::Client;
use crate::model::MAX_CONTEXT;

const MODEL: &str = "stand-in";

/// Serves until `stop`, then finishes the requests it has.
pub(crate) async fn serve(
    listener: TcpListener,
    engines: Vec<Client>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let app = Arc::new(App { engines, asked: AtomicUsize::new(0) });
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let stopping = Arc::new(Notify::new());
    let told = Arc::clone(&stopping);
    let stopped = async move {
        stop.await;
        told.notify_one();
    };
    tokio::select! {
        served = axum::serve(listener, routes(app)).with_graceful_shutdown(stopped) => served,
        () = async { stopping.notified().await; sleep(crate::PATIENCE).await } => {
            warn!("stopping although some connections are still open");
            Ok(())
        }
    }
}

struct App {
    engines: Vec<Client>,
    asked: AtomicUsize,
}

fn routes(app: Arc<App>) -> Router {
    Router::new()
        .route("/v1/completions", post(completions))
        .route("/health", get(health))
        .fallback(|| async { unknown(StatusCode::NOT_FOUND) })
        .method_not_allowed_fallback(|| async { unknown(StatusCode::METHOD_NOT_ALLOWED) })
        .with_state(app)
}

fn unknown(status: StatusCode) -> ApiError {
    ApiError::new(status, None, "expected POST /v1/completions or GET /health")
}

async fn health(State(app): State<Arc<App>>) -> StatusCode {
    match app.engines.iter().all(Client::is_connected) {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    }
}

#[derive(Deserialize)]
struct CompletionRequest {
    model: String,
    prompt: String,
    #[serde(default = "default_max_tokens")]
    max_tokens: usize,
    #[serde(default)]
    stream: bool,
}

fn default_max_tokens() -> usize {
    16
}

async fn completions(
    State(app): State<Arc<App>>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<Value>, ApiError> {
    let body = body.map_err(|error| ApiError::new(error.status(), None, error.body_text()))?;
    let request = parse(&body)?;
    let number = app.asked.fetch_add(1, Ordering::Relaxed);
    let engine = &app.engines[number % app.engines.len()];
    let Some(done) = engine.complete(request.prompt, request.max_tokens).await else {
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, None, "the engine is gone"));
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    Ok(Json(json!({
        "id": format!("cmpl-{}-{number}", std::process::id()),
        "object": "text_completion",
        "created": now,
        "model": MODEL,
        "choices": [{
            "index": 0, "text": done.text, "logprobs": null, "finish_reason": done.finish,
        }],
        "usage": {
            "prompt_tokens": done.prompt_tokens,
            "completion_tokens": done.completion_tokens,
            "total_tokens": done.prompt_tokens + done.completion_tokens,
            "prompt_tokens_details": { "cached_tokens": done.cached_tokens },
        },
    })))
}

fn parse(body: &[u8]) -> Result<CompletionRequest, ApiError> {
    let bad = |param, message: String| Err(ApiError::new(StatusCode::BAD_REQUEST, param, message));
    let request: CompletionRequest = match serde_json::from_slice(body) {
        Ok(request) => request,
        Err(error) => return bad(None, format!("the body: {error}")),
    };
    let words = request.prompt.split_whitespace().count();
    let (model, max_tokens) = (&request.model, request.max_tokens);
    if model != MODEL {
        return bad(Some("model"), format!("expected {MODEL:?}, got {model:?}"));
    }
    if request.stream {
        return bad(Some("stream"), "this stand-in does not stream".to_owned());
    }
    if words == 0 || words >= MAX_CONTEXT {
        let most = MAX_CONTEXT - 1;
        return bad(Some("prompt"), format!("expected 1 to {most} words, got {words}"));
    }
    let most = MAX_CONTEXT - words;
    if max_tokens == 0 || max_tokens > most {
        let expected = format!("1 to {most} after a prompt of {words} tokens");
        return bad(Some("max_tokens"), format!("expected {expected}, got {max_tokens}"));
    }
    Ok(request)
}

/// An error in OpenAI's shape.
struct ApiError {
    status: StatusCode,
    param: Option<&'static str>,
    message: String,
}

impl ApiError {
    fn new(
        status: StatusCode,
        param: Option<&'static str>,
        message: impl Into<String>,
    ) -> ApiError {
        let message = message.into();
        ApiError { status, param, message }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let kind = match self.status.is_client_error() {
            true => "invalid_request_error",
            false => "server_error",
        };
        let ApiError { status, param, message } = self;
        let error = json!({ "message": message, "type": kind, "param": param, "code": null });
        (status, Json(json!({ "error": error }))).into_response()
    }
}
