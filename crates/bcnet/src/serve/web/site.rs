//! What is answered, to whom.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bcnet_control::Refusal;
use bcnet_udp::Clock;

use super::act;
use super::form::{Form, encode};
use super::guard::{Policy, cookie};
use super::logins::{Denied, Logins, Note, Operator, Visit};
use super::pages;
use super::pages::standings::{self, Standings};
use super::picture::Latest;
use super::secret::Secret;
use crate::config::Line;
use crate::log::LineLimit;
use crate::serve::control_plane::ControlPlane;

/// Everything that answers depend on.
pub(super) struct Site {
    pub(super) plane: Arc<ControlPlane>,
    clock: Clock,
    pub(super) policy: Policy,
    logins: Mutex<Logins>,
    pub(super) latest: Latest,
    standings: Standings,
    /// How often it is logged that somebody was turned away.
    lines: Mutex<LineLimit>,
    /// How many were.
    refused: Arc<AtomicU64>,
}

/// A request.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) peer: IpAddr,
    pub(super) path: String,
    pub(super) query: String,
    /// Only what is sent has one.
    pub(super) form: Option<String>,
    pub(super) host: String,
    pub(super) origin: Option<String>,
    pub(super) cookies: String,
    pub(super) forwarded: Option<String>,
    /// It has come through a proxy.
    pub(super) is_forwarded: bool,
    /// The page's script asks by itself, and has plots until this time.
    pub(super) live: Option<u64>,
}

/// An answer.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) kind: &'static str,
    pub(super) body: String,
    /// Why there is nothing else, for the log.
    pub(super) reason: String,
    /// What scripts and styles of this page have, and no others.
    pub(super) nonce: Option<String>,
    pub(super) location: Option<String>,
    pub(super) cookie: Option<String>,
    pub(super) allow: Option<&'static str>,
    pub(super) retry_after: Option<&'static str>,
}

impl Reply {
    /// A short text that says why there is nothing else.
    pub(super) fn problem(status: u16, text: &str) -> Self {
        Self {
            status,
            kind: "text/plain; charset=utf-8",
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
        Self { kind: "text/html; charset=utf-8", body, nonce: Some(nonce), ..Self::problem(status, "") }
    }

    /// Sends a browser elsewhere, with a new request.
    pub(super) fn see(place: &str) -> Self {
        Self { location: Some(place.to_owned()), ..Self::problem(303, place) }
    }
}

/// Who asks, and how its page is made.
pub(super) struct Visitor {
    /// Whoever has shown the token.
    pub(super) operator: Option<Operator>,
    pub(super) query: Form,
    pub(super) nonce: String,
    /// Only what changes is wanted.
    pub(super) is_live: bool,
    /// Until when the page has plots already.
    pub(super) has_until: Option<u64>,
    /// There are standings for everyone.
    pub(super) has_standings: bool,
}

impl Site {
    pub(super) fn new(
        plane: Arc<ControlPlane>,
        clock: Clock,
        policy: Policy,
        logins: Logins,
        refused: Arc<AtomicU64>,
    ) -> Self {
        let lines = Mutex::new(LineLimit::new(5, Duration::from_secs(10)));
        Self {
            plane,
            clock,
            policy,
            logins: Mutex::new(logins),
            latest: Latest::default(),
            standings: Standings::default(),
            lines,
            refused,
        }
    }

    pub(super) fn answer(&self, asked: &Asked) -> Reply {
        let reply = self.refuse(asked).unwrap_or_else(|| self.route(asked));
        if reply.status >= 400 && reply.status != 404 {
            self.note_refusal(self.policy.visitor(asked.peer, asked.forwarded.as_deref()), &reply);
        }
        reply
    }

    /// Returns what to answer to what no browser of an operator sends.
    fn refuse(&self, asked: &Asked) -> Option<Reply> {
        if !self.policy.is_own_host(&asked.host) {
            let text =
                "the page does not answer by this name; if it is yours, add it to `hosts` below `[web]`";
            return Some(Reply::problem(421, text));
        }
        let is_foreign = || !self.policy.is_own_origin(&asked.host, asked.origin.as_deref());
        (asked.form.is_some() && is_foreign())
            .then(|| Reply::problem(403, "this form was sent by another page"))
    }

    fn route(&self, asked: &Asked) -> Reply {
        let visit = if asked.live.is_some() { Visit::Script } else { Visit::Person };
        let id = cookie(&asked.cookies, &self.policy.cookie()).unwrap_or_default();
        let operator = self.logins().operator(id, visit, self.clock.now());
        let is_expired = operator.is_none() && !id.is_empty();
        let Ok(nonce) = Secret::new() else { return Reply::problem(500, "no random numbers") };
        let visitor = Visitor {
            operator,
            query: Form::parse(&asked.query),
            nonce: nonce.reveal().to_owned(),
            is_live: asked.live.is_some(),
            has_until: asked.live,
            has_standings: self.plane.public_standings().is_some(),
        };
        // A page that an operator looked at goes on for nobody else.
        if is_expired && visitor.is_live {
            return turn_away(&visitor, &asked.path);
        }
        let reply = self.reply(asked, id, visitor);
        match reply.cookie {
            None if is_expired => Reply { cookie: Some(self.no_cookie()), ..reply },
            _ => reply,
        }
    }

    fn reply(&self, asked: &Asked, id: &str, visitor: Visitor) -> Reply {
        match (&asked.form, asked.path.as_str()) {
            (Some(form), "/login") => self.log_in(asked, &Form::parse(form), visitor),
            (Some(form), path) => match &visitor.operator {
                Some(operator) => self.change(path, &Form::parse(form), id, operator),
                None => pages::login(401, visitor, "/", Some(LOGGED_OUT)),
            },
            (None, "/login") => {
                let to = place(visitor.query.get("to")).to_owned();
                pages::login(200, visitor, &to, None)
            }
            (None, standings::PATH) => self.show_standings(visitor),
            (None, _) if visitor.operator.is_none() && self.is_public(asked) => {
                turn_away(&visitor, &asked.path)
            }
            (None, path) => self.show(path, visitor),
        }
    }

    /// Returns whether somebody elsewhere may be the one who asks: also by a proxy that nobody has told us of.
    fn is_public(&self, asked: &Asked) -> bool {
        self.policy.is_public || asked.is_forwarded
    }

    fn show(&self, path: &str, visitor: Visitor) -> Reply {
        let is_operators = pages::is_operators(path);
        if is_operators && visitor.operator.is_none() {
            return turn_away(&visitor, path);
        }
        match self.latest.get(&self.plane, self.clock) {
            Ok(picture) => pages::show(self, path, &picture, visitor),
            Err(Refusal(reason)) => Reply::problem(503, &reason),
        }
    }

    /// Shows the standings to everyone, if that is wanted.
    fn show_standings(&self, visitor: Visitor) -> Reply {
        match self.plane.public_standings() {
            Some(file) => self.standings.reply(file, visitor, self.clock.now()),
            None => pages::missing(visitor),
        }
    }

    fn log_in(&self, asked: &Asked, form: &Form, visitor: Visitor) -> Reply {
        let from = self.policy.visitor(asked.peer, asked.forwarded.as_deref());
        let name = Line::<40>::lossy(form.get("name").trim()).0;
        let by = if name.is_empty() { "page".into() } else { format!("{name} (page)") };
        let entered = self.logins().log_in(form.get("token"), &by, from, self.clock.now());
        let to = place(form.get("to"));
        match entered {
            Err(_) => Reply::problem(500, "no random numbers"),
            Ok(Ok(id)) => {
                tracing::info!(event = "web_login", by, address = %from);
                Reply { cookie: Some(self.cookie(id.reveal(), "")), ..Reply::see(to) }
            }
            Ok(Err(Denied::Wrong)) => pages::login(403, visitor, to, Some(WRONG)),
            Ok(Err(Denied::TooMany)) => {
                Reply { retry_after: Some("60"), ..pages::login(429, visitor, to, Some(TOO_MANY)) }
            }
        }
    }

    /// Does what an operator's form says.
    fn change(&self, path: &str, form: &Form, id: &str, operator: &Operator) -> Reply {
        if !operator.csrf.is(form.get("csrf")) {
            return Reply::problem(403, "this form is of another login; load the page again");
        }
        match path {
            "/logout" => {
                self.logins().log_out(id);
                Reply { cookie: Some(self.no_cookie()), ..Reply::see("/login") }
            }
            "/act" => {
                let done = act::act(&self.plane, &operator.by, form);
                self.latest.forget();
                let (place, note) = match done.outcome {
                    Ok(text) => (done.place, Note { text, is_refusal: false }),
                    Err(Refusal(text)) => (done.place_if_refused, Note { text, is_refusal: true }),
                };
                self.logins().note(id, note);
                Reply::see(&place)
            }
            _ => Reply::problem(404, "there is no such page"),
        }
    }

    /// Returns what the browser is to send along from now on.
    fn cookie(&self, value: &str, more: &str) -> String {
        let secure = if self.policy.is_secure { "; Secure" } else { "" };
        format!("{}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{more}", self.policy.cookie())
    }

    /// Returns what has the browser send nothing along any more.
    fn no_cookie(&self) -> String {
        self.cookie("", "; Max-Age=0")
    }

    /// Logs that somebody was turned away, unless that happens all the time.
    pub(super) fn note_refusal(&self, peer: IpAddr, reply: &Reply) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held_back) = lines.pass(self.clock.now()) {
            let Reply { status, reason, .. } = reply;
            tracing::warn!(event = "web_refused", address = %peer, status, reason, held_back);
        }
    }

    fn logins(&self) -> MutexGuard<'_, Logins> {
        // Whoever panicked has changed nothing by halves.
        self.logins.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends a person to where the token is asked for, and then on.
fn turn_away(visitor: &Visitor, path: &str) -> Reply {
    if visitor.is_live {
        Reply::problem(401, "log in first")
    } else {
        Reply::see(&format!("/login?to={}", encode(place(path))))
    }
}

/// Returns where to go after the login. A link of others leads nowhere but to pages that there may be.
fn place(wanted: &str) -> &str {
    let is_own = wanted.starts_with('/')
        && !wanted.starts_with("//")
        && wanted.bytes().all(|byte| byte == b'/' || byte.is_ascii_alphanumeric());
    if is_own { wanted } else { "/" }
}

const LOGGED_OUT: &str =
    "Nothing was done: nobody is logged in here, or not any more. Log in, and do it again.";
const WRONG: &str = "That is not the token.";
const TOO_MANY: &str = "Too many attempts from your address. Wait a minute, then try again.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_leads_to_pages_of_this_server_only() {
        for own in ["/", "/log", "/session/22101", "/player/22101/3"] {
            assert_eq!(place(own), own);
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
            assert_eq!(place(other), "/", "{other}");
        }
    }
}
