//! One hook: the queue of its events, and the thread that posts them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bcnet_udp::Clock;
use ureq::http::Method;

use super::message;
use crate::config::{Hook, HookFormat};
use crate::http_client::{HttpClient, HttpError, ResponseHead};
use crate::log::LogRateLimiter;

/// Counters of a hook. They are kept as long as a hook with this name exists.
#[derive(Debug, Default)]
pub(super) struct HookCounters {
    /// Events that the hook accepted.
    pub(super) sent: AtomicU64,
    /// Events that were posted without success.
    pub(super) failed: AtomicU64,
    /// Events that were never posted.
    pub(super) dropped: AtomicU64,
    /// The error of the last attempt, if it failed.
    problem: Mutex<Option<String>>,
}

impl HookCounters {
    pub(super) fn problem(&self) -> Option<String> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_problem(&self, problem: Option<String>) {
        *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = problem;
    }
}

/// The messages to post. A full queue drops the oldest message.
///
/// A message is a line of text for Discord, and a whole request body for other formats.
#[derive(Debug, Default)]
pub(super) struct HookQueue {
    state: Mutex<HookQueueState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct HookQueueState {
    messages: VecDeque<String>,
    is_closed: bool,
}

impl HookQueue {
    /// Appends a message. Returns `false` if the queue was full and dropped its oldest message.
    #[must_use]
    pub(super) fn push(&self, message: String) -> bool {
        let mut state = self.lock();
        state.messages.push_back(message);
        let is_full = state.messages.len() > MAX_QUEUED;
        if is_full {
            state.messages.pop_front();
        }
        drop(state);
        self.changed.notify_all();
        !is_full
    }

    /// Closes the queue. The thread tries to post each queued message once, then ends.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Clears the queue and makes the thread end. Returns the number of dropped messages.
    pub(super) fn abandon(&self) -> u64 {
        let dropped = std::mem::take(&mut self.lock().messages).len();
        self.close();
        dropped as u64
    }

    pub(super) fn len(&self) -> usize {
        self.lock().messages.len()
    }

    /// Waits for a message. Returns the text and the number of messages in it.
    ///
    /// Appends following messages as long as `fits` accepts the text so far and the next message. Returns
    /// `None` when the queue is closed and empty.
    fn take_batch(&self, fits: impl Fn(&str, &str) -> bool) -> Option<(String, u64)> {
        let is_idle = |waiting: &mut HookQueueState| waiting.messages.is_empty() && !waiting.is_closed;
        let mut waiting =
            self.changed.wait_while(self.lock(), is_idle).unwrap_or_else(PoisonError::into_inner);
        let (mut text, mut count) = (waiting.messages.pop_front()?, 1);
        while waiting.messages.front().is_some_and(|next| fits(&text, next)) {
            let next = waiting.messages.pop_front().unwrap_or_default();
            text = format!("{text}\n{next}");
            count += 1;
        }
        Some((text, count))
    }

    /// Waits for this time. Returns `false` at once when the queue is closed.
    fn wait_open(&self, time: Duration) -> bool {
        let is_open = |waiting: &mut HookQueueState| !waiting.is_closed;
        let waited = self.changed.wait_timeout_while(self.lock(), time, is_open);
        !waited.unwrap_or_else(PoisonError::into_inner).0.is_closed
    }

    fn lock(&self) -> MutexGuard<'_, HookQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Posts the messages of a queue.
pub(super) struct HookSender {
    pub(super) hook: Hook,
    pub(super) queue: Arc<HookQueue>,
    pub(super) counters: Arc<HookCounters>,
    pub(super) client: HttpClient,
    pub(super) clock: Clock,
    pub(super) log_limiter: LogRateLimiter,
    /// `true` after a logged failure, until a message succeeds.
    pub(super) has_logged_failure: bool,
}

impl HookSender {
    /// Posts until the queue is closed and empty.
    pub(super) fn run(mut self) {
        let is_discord = self.hook.format == HookFormat::Discord;
        while let Some((text, count)) =
            self.queue.take_batch(|text, more| is_discord && message::fits(text, more))
        {
            let body = if is_discord { message::discord_body(&text) } else { text };
            match self.deliver(&body) {
                Ok(()) => {
                    self.counters.sent.fetch_add(count, Ordering::Relaxed);
                    self.counters.set_problem(None);
                    if std::mem::take(&mut self.has_logged_failure) {
                        let (hook, host) = (&self.hook.name.0, self.hook.url.host());
                        tracing::info!(event = "hook_works", hook, host);
                    }
                }
                Err(problem) => {
                    self.counters.failed.fetch_add(count, Ordering::Relaxed);
                    self.log_failure(&problem, count);
                }
            }
        }
    }

    fn log_failure(&mut self, error: &str, lost: u64) {
        if let Some(held_back) = self.log_limiter.allow(self.clock.now()) {
            let (hook, host) = (&self.hook.name.0, self.hook.url.host());
            tracing::warn!(
                event = "hook_failed",
                hook,
                host,
                error,
                lost,
                held_back,
                "events lost: the hook did not accept them; test it with `bcnet ctl test-hook {hook}`"
            );
            self.has_logged_failure = true;
        }
    }

    /// Posts one request body, with retries after temporary errors.
    ///
    /// # Errors
    ///
    /// Returns a description of the last attempt.
    fn deliver(&self, body: &str) -> Result<(), String> {
        let mut attempt = 0;
        loop {
            let outcome = post(&self.client, &self.hook, body.to_owned(), self.hook.timeout);
            attempt += 1;
            let pause = match &outcome {
                Ok(answer) if answer.is_success() => return Ok(()),
                Ok(answer) => retry_delay(*answer, attempt),
                Err(failure) => failure.is_temporary().then(|| backoff(attempt)),
            };
            // Records the problem after each attempt, so that operators see it before the last one. If the
            // queue is closed, a new hook with the same name may use these counters already.
            if !self.queue.lock().is_closed {
                self.counters.set_problem(Some(describe_outcome(&outcome)));
            }
            let should_retry =
                attempt < MAX_ATTEMPTS && pause.is_some_and(|pause| self.queue.wait_open(pause));
            if !should_retry {
                return Err(describe_outcome(&outcome));
            }
        }
    }
}

/// Posts a body once, without retries. Returns the head of the answer, whatever its status.
///
/// # Errors
/// Returns an [`HttpError`] if there is no answer, or if the hook has no URL.
pub(super) fn post(
    client: &HttpClient,
    hook: &Hook,
    body: String,
    timeout: Duration,
) -> Result<ResponseHead, HttpError> {
    match hook.url.reveal() {
        Some(url) => client.send(Method::POST, url, body, timeout),
        None => Err(HttpError::InvalidResponse),
    }
}

/// Returns the delay before the next attempt after an error status; `None` if a retry is useless.
fn retry_delay(answer: ResponseHead, attempt: u32) -> Option<Duration> {
    match answer.status {
        429 | 503 => Some(answer.retry_after.unwrap_or_else(|| backoff(attempt)).min(MAX_RETRY_DELAY)),
        408 | 500.. => Some(backoff(attempt)),
        _ => None,
    }
}

/// Returns the delay before the next attempt: 1 s, then doubled each time, at most [`MAX_RETRY_DELAY`].
fn backoff(attempt: u32) -> Duration {
    Duration::from_secs(1 << attempt.saturating_sub(1).min(5)).min(MAX_RETRY_DELAY)
}

/// Describes the result of an attempt, for people.
pub(super) fn describe_outcome(outcome: &Result<ResponseHead, HttpError>) -> String {
    match outcome {
        Ok(ResponseHead { status: status @ 300..400, .. }) => {
            format!("the answer was status {status}; redirects are not followed")
        }
        Ok(ResponseHead { status, .. }) => format!("the answer was status {status}"),
        Err(failure) => failure.to_string(),
    }
}

/// Largest number of queued messages of one hook.
const MAX_QUEUED: usize = 100;
/// Attempts for one message.
const MAX_ATTEMPTS: u32 = 5;
/// Longest delay between two attempts, even if the server asks for more.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, retry_after: Option<u64>) -> ResponseHead {
        ResponseHead { status, retry_after: retry_after.map(Duration::from_secs) }
    }

    #[test]
    fn temporary_errors_are_retried_with_backoff() {
        let pauses =
            |status| (1..8).map(|attempt| retry_delay(answer(status, None), attempt)).collect::<Vec<_>>();
        let expected = [1, 2, 4, 8, 16, 30, 30].map(|seconds| Some(Duration::from_secs(seconds)));
        for status in [408, 429, 500, 502, 503, 599] {
            assert_eq!(pauses(status), expected, "{status}");
        }
        for status in [100, 301, 307, 400, 401, 404, 410] {
            assert_eq!(pauses(status)[0], None, "{status}");
        }
        assert_eq!(retry_delay(answer(429, Some(7)), 1), Some(Duration::from_secs(7)));
        assert_eq!(retry_delay(answer(429, Some(86_400)), 1), Some(MAX_RETRY_DELAY));
    }

    #[test]
    fn full_queue_drops_the_oldest_and_lines_share_a_message() {
        let queue = HookQueue::default();
        assert!((0..MAX_QUEUED).all(|n| queue.push(n.to_string())));
        assert!(!queue.push("last".into()) && queue.len() == MAX_QUEUED);
        assert_eq!(queue.take_batch(|_, _| false), Some(("1".into(), 1)));
        assert_eq!(queue.take_batch(|text, _| text.len() < 5), Some(("2\n3\n4".into(), 3)));
        queue.close();
        assert!(!queue.wait_open(Duration::from_secs(3600)), "a closed queue does not wait");
        assert_eq!(queue.take_batch(|_, _| true).map(|(_, count)| count), Some(MAX_QUEUED as u64 - 4));
        assert_eq!(queue.take_batch(|_, _| true), None);
    }
}
