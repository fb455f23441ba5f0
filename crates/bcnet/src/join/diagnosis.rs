//! Explains a failed join in one line, with advice.

use std::path::Path;

use bcnet_session::REFUSAL_PREFIX;
use bcnet_session::client::{ClientState, DisconnectReason, ServerAnomaly};
use bcnet_transport::wire::BootReason;

/// Observations during a join.
#[derive(Debug, Default)]
pub(super) struct JoinDiagnosis {
    /// The text of the server's refusal: the file that differs, or a limit.
    pub(super) refusal_text: Option<String>,
    /// `true` once the server has sent the game settings: the file checks are passed.
    pub(super) files_passed: bool,
    /// `true` if the last file check got no answer.
    pub(super) check_unanswered: bool,
    /// The latest anomaly in the server's messages.
    pub(super) anomaly: Option<ServerAnomaly>,
}

/// Arguments of the user, and the state of the network.
#[derive(Debug)]
pub(super) struct JoinContext<'a> {
    pub(super) timeout: String,
    pub(super) has_password: bool,
    pub(super) manifest: Option<&'a Path>,
    pub(super) is_unreachable: bool,
}

impl JoinDiagnosis {
    /// Returns the state to show to people. A client that has passed the file checks is loading the mission.
    pub(super) fn visible_step(&self, state: ClientState) -> ClientState {
        if state == ClientState::Checking && self.files_passed { ClientState::Loading } else { state }
    }

    /// Returns the reason why the connection ended.
    pub(super) fn reason(
        &self,
        state: ClientState,
        end: DisconnectReason,
        context: &JoinContext<'_>,
    ) -> String {
        let step = self.visible_step(state);
        match (end, &self.refusal_text) {
            (
                DisconnectReason::Booted(_)
                | DisconnectReason::HostLeft
                | DisconnectReason::HostTimedOut
                | DisconnectReason::HandshakeTimedOut,
                Some(text),
            ) => match text.strip_prefix(REFUSAL_PREFIX) {
                Some(reason) => format!("refused: {reason}"),
                None => files_differ(text, context),
            },
            (DisconnectReason::Booted(reason), None) => boot_reason(step, reason, context),
            (DisconnectReason::HostTimedOut | DisconnectReason::HandshakeTimedOut, None) => {
                self.timeout_reason(step, context)
            }
            (DisconnectReason::HostLeft, None) if step < ClientState::Lobby => {
                format!("the server shut down while {step}")
            }
            (DisconnectReason::Left | DisconnectReason::HostLeft | DisconnectReason::Undeliverable, _) => {
                end.to_string()
            }
        }
    }

    fn timeout_reason(&self, step: ClientState, context: &JoinContext<'_>) -> String {
        let JoinContext { timeout, is_unreachable: unreachable, .. } = context;
        let step = match step {
            ClientState::Connecting if *unreachable => {
                return format!("no answer within {timeout}: no program listens on that port");
            }
            ClientState::Connecting if self.anomaly.is_none() => {
                return format!("no answer within {timeout}");
            }
            ClientState::Connecting
            | ClientState::Checking
            | ClientState::Loading
            | ClientState::Entering => format!("while {step}"),
            ClientState::Lobby | ClientState::InGame | ClientState::Gone => {
                return "the server stopped answering".into();
            }
        };
        match self.anomaly {
            Some(what) => {
                format!("the server sends invalid data, for example {what}; the join failed {step}")
            }
            None if self.check_unanswered => {
                format!(
                    "the server repeats a file check that this client cannot answer: join not finished within {timeout}, {step}"
                )
            }
            None => format!("the server stopped answering {step}: join not finished within {timeout}"),
        }
    }
}

fn files_differ(file: &str, context: &JoinContext<'_>) -> String {
    let advice = match context.manifest {
        Some(path) => format!("the server does not accept the installation that {} was learned from", path.display()),
        None => {
            "the server accepts only certain installations; pass --manifest FILE from one of them (bcnet manifest learn)"
                .into()
        }
    };
    format!("files differ: {file}: {advice}")
}

fn boot_reason(step: ClientState, reason: BootReason, context: &JoinContext<'_>) -> String {
    let entered = step >= ClientState::Lobby;
    match reason {
        BootReason::WRONG_PASSWORD if context.has_password => "wrong password".into(),
        BootReason::WRONG_PASSWORD => "the server needs a password; pass --password".into(),
        BootReason::FULL => "the server is full".into(),
        BootReason::BANNED => "banned from this server".into(),
        BootReason::KICKED if entered => "kicked".into(),
        BootReason::KICKED => "kicked a moment ago: try again in a few seconds".into(),
        BootReason::TIMED_OUT => format!("disconnected by the server: timeout while {step}"),
        BootReason::DEFAULT if step == ClientState::Connecting => {
            "refused: the round is over, or the server gave no reason".into()
        }
        BootReason::DEFAULT => "disconnected by the server without a reason".into(),
        other => format!("disconnected by the server: {other}"),
    }
}
