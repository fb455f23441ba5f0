//! The operator page: a small web site with the state of the server and the actions of `bcnet ctl`.
//!
//! The [`server`] speaks HTTP within limits. The [`site`] checks a request ([`access`]) and finds its operator
//! ([`logins`], [`secret`]). Actions go to the control plane, like those of `bcnet ctl`.
//! The [`snapshot`] of all sessions is cached for a second, for all viewers together.
//! The [`pages`] are HTML that needs no script. With the script, pages update themselves.

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

/// The operator page before it is served.
pub(super) struct OperatorPage {
    listener: TcpListener,
    certificate: Option<Certificate>,
    policy: AccessPolicy,
    logins: Logins,
    refusal_counter: Arc<AtomicU64>,
}

impl OperatorPage {
    /// Binds the port and loads the certificate and the token, if the page is enabled.
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

    /// Returns the counter of refused requests.
    pub(super) fn refusal_counter(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.refusal_counter)
    }

    /// Starts to serve the page. Returns its URL.
    pub(super) fn start(self, plane: Arc<ControlPlane>, clock: Clock) -> io::Result<String> {
        let scheme = if self.certificate.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}/", self.listener.local_addr()?);
        let site = Site::new(plane, clock, self.policy, self.logins, self.refusal_counter);
        server::start(self.listener, self.certificate, clock, Arc::new(site))?;
        Ok(url)
    }
}

/// Shows a new token to the operator.
///
/// A terminal shows the token itself. Otherwise the log gets only the path of the file, because logs may be
/// kept.
fn announce_token(token: &Token, path: &str) {
    let mut terminal = io::stderr();
    if terminal.is_terminal() {
        // Write errors are ignored: the token is also in the file.
        drop(writeln!(
            terminal,
            "Token of the operator page (shown only now, stored in {path}): {}",
            token.reveal()
        ));
    } else {
        tracing::info!(event = "web_token", path, "created a token for the operator page in this file");
    }
}
