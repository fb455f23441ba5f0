//! The page: who plays and how well, and what `bcnet ctl` can do, for the operator's browser.
//!
//! The [`server`] speaks HTTP within limits. The [`site`] decides whether a request is answered ([`guard`]) and who asks
//! ([`logins`], [`secret`]), and hands what operators do to the control plane, as `bcnet ctl` does. What the game is asked for
//! figures is kept for a second ([`picture`]), however many look at it. The [`pages`] are HTML and need no script; with it they
//! renew themselves.

mod access;
mod actions;
mod form;
mod logins;
mod pages;
mod secret;
mod server;
mod site;
mod snapshot;
mod tls;

use std::io::{self, IsTerminal, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use anyhow::Context;
use bcnet_udp::Clock;

use super::control_plane::ControlPlane;
use super::start::absolute_path;
use crate::config;
use access::AccessPolicy;
use logins::Logins;
use secret::Token;
use site::Site;
use tls::Certificate;

/// A page that nobody can see yet.
pub(super) struct OperatorPage {
    listener: TcpListener,
    certificate: Option<Certificate>,
    policy: AccessPolicy,
    logins: Logins,
    refusal_counter: Arc<AtomicU64>,
}

impl OperatorPage {
    /// Gets all that the page needs, if there is to be one. What is missing is told now.
    pub(super) fn prepare(web: &config::Web) -> anyhow::Result<Option<Self>> {
        if !web.enabled {
            return Ok(None);
        }
        let certificate = Certificate::load(web)?;
        let bind = web.bind;
        let problem = || format!("web.bind: cannot listen at TCP {bind}; choose another port or address");
        let listener = TcpListener::bind(bind).with_context(problem)?;
        let policy = AccessPolicy::new(web, listener.local_addr()?.port());
        let (token, is_new) = Token::load(&web.token_file)?;
        if is_new {
            announce_token(&token, &absolute_path(&web.token_file));
        }
        Ok(Some(Self {
            listener,
            certificate,
            policy,
            logins: Logins::new(token, web.idle, web.lifetime),
            refusal_counter: Arc::default(),
        }))
    }

    /// Returns where it is counted how often somebody was turned away.
    pub(super) fn refusal_counter(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.refusal_counter)
    }

    /// Shows it from now on. Returns its address for browsers.
    pub(super) fn start(self, plane: Arc<ControlPlane>, clock: Clock) -> io::Result<String> {
        let scheme = if self.certificate.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}/", self.listener.local_addr()?);
        let site = Site::new(plane, clock, self.policy, self.logins, self.refusal_counter);
        server::start(self.listener, self.certificate, clock, Arc::new(site))?;
        Ok(url)
    }
}

/// Shows the token where a person sees it. A pipe may end in a log, so there only the place of the file is told.
fn announce_token(token: &Token, path: &str) {
    let mut terminal = io::stderr();
    if terminal.is_terminal() {
        // Nobody may be interested; it is in the file.
        drop(writeln!(
            terminal,
            "The token of the page, shown this once and kept in {path}: {}",
            token.reveal()
        ));
    } else {
        tracing::info!(event = "web_token", path, "a token for the page was made; it is in this file");
    }
}
