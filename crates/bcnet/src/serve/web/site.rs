//! Routes requests: checks access, finds the operator, executes forms and selects the page.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bcnet_control::RequestError;
use bcnet_udp::Clock;

use super::access::{AccessPolicy, cookie_value};
use super::actions;
use super::form::{FormData, percent_encode};
use super::logins::{FlashMessage, Initiator, LoginError, Logins, Operator};
use super::pages;
use super::pages::standings::{self, Standings};
use super::secret::Secret;
use super::snapshot::SnapshotCache;
use crate::config::Latin1Line;
use crate::log::LogRateLimiter;
use crate::serve::control_plane::ControlPlane;

/// The state of the operator page.
pub(super) struct Site {
    pub(super) plane: Arc<ControlPlane>,
    clock: Clock,
    pub(super) policy: AccessPolicy,
    logins: Mutex<Logins>,
    pub(super) snapshot_cache: SnapshotCache,
    standings: Standings,
    /// Rate limit of log lines about refused requests.
    refusal_log_limit: Mutex<LogRateLimiter>,
    /// Number of refused requests.
    refusal_counter: Arc<AtomicU64>,
}

/// The parts of an HTTP request that the site uses.
#[derive(Debug)]
pub(super) struct PageRequest {
    pub(super) peer: IpAddr,
    pub(super) path: String,
    pub(super) query: String,
    /// The body of a POST request.
    pub(super) form: Option<String>,
    pub(super) host: String,
    pub(super) origin: Option<String>,
    pub(super) cookies: String,
    pub(super) forwarded: Option<String>,
    /// The request has headers of a proxy.
    pub(super) is_forwarded: bool,
    /// The request comes from the script of the page, which already has plots up to this time.
    pub(super) live_until: Option<u64>,
}

/// An HTTP response.
#[derive(Debug)]
pub(super) struct PageResponse {
    pub(super) status: u16,
    pub(super) content_type: &'static str,
    pub(super) body: String,
    /// The reason of an error, for the log.
    pub(super) reason: String,
    /// The value that marks the scripts and styles of this page; browsers run no others.
    pub(super) nonce: Option<String>,
    pub(super) location: Option<String>,
    pub(super) cookie: Option<String>,
    pub(super) allow: Option<&'static str>,
    pub(super) retry_after: Option<&'static str>,
}

impl PageResponse {
    /// Returns an error response with a short text.
    pub(super) fn error(status: u16, text: &str) -> Self {
        Self {
            status,
            content_type: "text/plain; charset=utf-8",
            body: format!("{text}\n"),
            reason: text.to_owned(),
            nonce: None,
            location: None,
            cookie: None,
            allow: None,
            retry_after: None,
        }
    }

    pub(super) fn html(status: u16, body: String, nonce: String) -> Self {
        Self { content_type: "text/html; charset=utf-8", body, nonce: Some(nonce), ..Self::error(status, "") }
    }

    /// Redirects the browser to another page, which it fetches with GET.
    pub(super) fn redirect(path: &str) -> Self {
        Self { location: Some(path.to_owned()), ..Self::error(303, path) }
    }
}

/// The operator and the options of a page.
pub(super) struct RequestContext {
    /// The operator, if the browser is logged in.
    pub(super) operator: Option<Operator>,
    pub(super) query: FormData,
    pub(super) nonce: String,
    /// The script wants only the parts that change.
    pub(super) is_live_update: bool,
    /// The page already has plots up to this time.
    pub(super) plots_until: Option<u64>,
    /// The standings are public.
    pub(super) has_standings: bool,
}

impl Site {
    pub(super) fn new(
        plane: Arc<ControlPlane>,
        clock: Clock,
        policy: AccessPolicy,
        logins: Logins,
        refused: Arc<AtomicU64>,
    ) -> Self {
        let refusal_log_limit = Mutex::new(LogRateLimiter::new(5, Duration::from_secs(10)));
        Self {
            plane,
            clock,
            policy,
            logins: Mutex::new(logins),
            snapshot_cache: SnapshotCache::default(),
            standings: Standings::default(),
            refusal_log_limit,
            refusal_counter: refused,
        }
    }

    pub(super) fn handle(&self, request: &PageRequest) -> PageResponse {
        let reply = self.check_request(request).unwrap_or_else(|| self.route(request));
        if reply.status >= 400 && reply.status != 404 {
            self.log_refusal(self.policy.client_address(request.peer, request.forwarded.as_deref()), &reply);
        }
        reply
    }

    /// Returns an error for requests that no operator's browser sends.
    fn check_request(&self, request: &PageRequest) -> Option<PageResponse> {
        if !self.policy.is_own_host(&request.host) {
            let text = "the operator page has no such host name; if the name is yours, add it to `hosts` in `[web]` of the configuration";
            return Some(PageResponse::error(421, text));
        }
        let is_foreign = || !self.policy.is_own_origin(&request.host, request.origin.as_deref());
        (request.form.is_some() && is_foreign())
            .then(|| PageResponse::error(403, "the form comes from another site"))
    }

    fn route(&self, request: &PageRequest) -> PageResponse {
        let initiator = if request.live_until.is_some() { Initiator::Script } else { Initiator::User };
        let id = cookie_value(&request.cookies, &self.policy.cookie_name()).unwrap_or_default();
        let operator = self.logins().authenticate(id, initiator, self.clock.now());
        let is_expired = operator.is_none() && !id.is_empty();
        let Ok(nonce) = Secret::new() else {
            return PageResponse::error(500, "the system has no random numbers");
        };
        let context = RequestContext {
            operator,
            query: FormData::parse(&request.query),
            nonce: nonce.reveal().to_owned(),
            is_live_update: request.live_until.is_some(),
            plots_until: request.live_until,
            has_standings: self.plane.public_standings().is_some(),
        };
        // The page of an operator whose login has expired must not be updated any more.
        if is_expired && context.is_live_update {
            return redirect_to_login(&context, &request.path);
        }
        let reply = self.dispatch(request, id, context);
        match reply.cookie {
            None if is_expired => PageResponse { cookie: Some(self.clear_cookie_header()), ..reply },
            _ => reply,
        }
    }

    fn dispatch(&self, request: &PageRequest, id: &str, context: RequestContext) -> PageResponse {
        match (&request.form, request.path.as_str()) {
            (Some(form), "/login") => self.log_in(request, &FormData::parse(form), context),
            (Some(form), path) => match &context.operator {
                Some(operator) => self.handle_form(path, &FormData::parse(form), id, operator),
                None => pages::login(401, context, "/", Some(LOGGED_OUT_TEXT)),
            },
            (None, "/login") => {
                let to = local_path(context.query.get("to")).to_owned();
                pages::login(200, context, &to, None)
            }
            (None, standings::PATH) => self.show_standings(context),
            (None, _) if context.operator.is_none() && self.may_be_remote(request) => {
                redirect_to_login(&context, &request.path)
            }
            (None, path) => self.show_page(path, context),
        }
    }

    /// Returns whether the client may be on another machine, also behind a proxy that is not configured.
    fn may_be_remote(&self, request: &PageRequest) -> bool {
        self.policy.is_public || request.is_forwarded
    }

    fn show_page(&self, path: &str, context: RequestContext) -> PageResponse {
        let requires_operator = pages::requires_operator(path);
        if requires_operator && context.operator.is_none() {
            return redirect_to_login(&context, path);
        }
        match self.snapshot_cache.get(&self.plane, self.clock) {
            Ok(snapshot) => pages::render(self, path, &snapshot, context),
            Err(RequestError(reason)) => PageResponse::error(503, &reason),
        }
    }

    /// Shows the public standings, if they are enabled.
    fn show_standings(&self, context: RequestContext) -> PageResponse {
        match self.plane.public_standings() {
            Some(file) => self.standings.render(file, context, self.clock.now()),
            None => pages::not_found(context),
        }
    }

    fn log_in(&self, request: &PageRequest, form: &FormData, context: RequestContext) -> PageResponse {
        let from = self.policy.client_address(request.peer, request.forwarded.as_deref());
        let name = Latin1Line::<40>::lossy(form.get("name").trim()).0;
        let by = if name.is_empty() { "page".into() } else { format!("{name} (page)") };
        let entered = self.logins().log_in(form.get("token"), &by, from, self.clock.now());
        let to = local_path(form.get("to"));
        match entered {
            Err(_) => PageResponse::error(500, "the system has no random numbers"),
            Ok(Ok(id)) => {
                tracing::info!(event = "web_login", by, address = %from);
                PageResponse {
                    cookie: Some(self.cookie_header(id.reveal(), "")),
                    ..PageResponse::redirect(to)
                }
            }
            Ok(Err(LoginError::WrongToken)) => pages::login(403, context, to, Some(WRONG_TOKEN_TEXT)),
            Ok(Err(LoginError::TooManyAttempts)) => PageResponse {
                retry_after: Some("60"),
                ..pages::login(429, context, to, Some(TOO_MANY_ATTEMPTS_TEXT))
            },
        }
    }

    /// Executes an operator's form.
    fn handle_form(&self, path: &str, form: &FormData, id: &str, operator: &Operator) -> PageResponse {
        if !operator.csrf.matches(form.get("csrf")) {
            return PageResponse::error(403, "the form belongs to another login; reload the page");
        }
        match path {
            "/logout" => {
                self.logins().log_out(id);
                PageResponse { cookie: Some(self.clear_cookie_header()), ..PageResponse::redirect("/login") }
            }
            "/act" => {
                let done = actions::perform(&self.plane, &operator.by, form);
                self.snapshot_cache.invalidate();
                let (redirect, message) = match done.result {
                    Ok(text) => (done.redirect, FlashMessage { text, is_refusal: false }),
                    Err(RequestError(text)) => {
                        (done.redirect_if_refused, FlashMessage { text, is_refusal: true })
                    }
                };
                self.logins().set_flash(id, message);
                PageResponse::redirect(&redirect)
            }
            _ => PageResponse::error(404, "page not found"),
        }
    }

    /// Returns the `Set-Cookie` header for a value.
    fn cookie_header(&self, value: &str, more: &str) -> String {
        let secure = if self.policy.is_secure { "; Secure" } else { "" };
        format!("{}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{more}", self.policy.cookie_name())
    }

    /// Returns the `Set-Cookie` header that deletes the cookie.
    fn clear_cookie_header(&self) -> String {
        self.cookie_header("", "; Max-Age=0")
    }

    /// Counts a refused request, and logs it rate limited.
    pub(super) fn log_refusal(&self, peer: IpAddr, reply: &PageResponse) {
        self.refusal_counter.fetch_add(1, Ordering::Relaxed);
        let mut limiter = self.refusal_log_limit.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held_back) = limiter.allow(self.clock.now()) {
            let PageResponse { status, reason, .. } = reply;
            tracing::warn!(event = "web_refused", address = %peer, status, reason, held_back);
        }
    }

    fn logins(&self) -> MutexGuard<'_, Logins> {
        // A panic leaves no half-done change.
        self.logins.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Redirects to the login page, which leads back afterwards. Requests of the script get an error instead.
fn redirect_to_login(context: &RequestContext, path: &str) -> PageResponse {
    if context.is_live_update {
        PageResponse::error(401, "log in first")
    } else {
        PageResponse::redirect(&format!("/login?to={}", percent_encode(local_path(path))))
    }
}

/// Returns the path to open after a login, or `/` if it is not a plain path of this site.
///
/// A foreign link must not lead to another site.
fn local_path(wanted: &str) -> &str {
    let is_own = wanted.starts_with('/')
        && !wanted.starts_with("//")
        && wanted.bytes().all(|byte| byte == b'/' || byte.is_ascii_alphanumeric());
    if is_own { wanted } else { "/" }
}

const LOGGED_OUT_TEXT: &str =
    "Not done: you are not logged in, or the login has expired. Log in, and repeat the action.";
const WRONG_TOKEN_TEXT: &str = "Wrong token.";
const TOO_MANY_ATTEMPTS_TEXT: &str = "Too many attempts from your address. Wait a minute, then try again.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn login_redirects_only_to_local_pages() {
        for own in ["/", "/log", "/session/22101", "/player/22101/3"] {
            assert_eq!(local_path(own), own);
        }
        for other in [
            "",
            "log",
            "//evil.example",
            "/\\evil.example",
            "/.evil",
            "https://evil.example",
            "/log?x=1",
            "/log\r\nX: 1",
            "/%2fevil",
        ] {
            assert_eq!(local_path(other), "/", "{other}");
        }
    }
}
