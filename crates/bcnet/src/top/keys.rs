//! The effects of keys.

use bcnet_control::{Envelope, Request};
use bcnet_transport::wire::is_printable;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::connection::ServerRequest;
use super::state::{Panel, PlayerOrder, ScreenState};
use crate::plots::PLOTS;

/// The next step of the main loop after an event.
pub(super) enum LoopAction {
    Continue,
    Quit,
    Send(ServerRequest),
}

/// A dialog in front of the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Dialog {
    Help,
    /// Input of a line of text.
    Text {
        purpose: Purpose,
        text: String,
    },
    /// Confirmation of a kick.
    Confirm {
        target: TargetPlayer,
        reason: String,
    },
}

/// The purpose of a text input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A chat message to a session.
    Say { port: u16 },
    /// A private message to one player.
    PrivateMessage(TargetPlayer),
    /// The reason for a kick.
    KickReason(TargetPlayer),
}

/// The player that a dialog is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TargetPlayer {
    port: u16,
    peer: u8,
    pub(super) name: String,
    address: String,
}

impl ScreenState {
    pub(super) fn handle_key(&mut self, key: KeyEvent) -> LoopAction {
        // On Windows, characters typed with AltGr arrive with both modifiers.
        let is_typed = key.modifiers.contains(KeyModifiers::ALT);
        if key.modifiers.contains(KeyModifiers::CONTROL) && !is_typed {
            return if matches!(key.code, KeyCode::Char('c' | 'C')) {
                LoopAction::Quit
            } else {
                LoopAction::Continue
            };
        }
        if self.is_too_small {
            // No actions while the terminal is too small to show what they do.
            return if key.code == KeyCode::Char('q') { LoopAction::Quit } else { LoopAction::Continue };
        }
        match self.dialog.take() {
            None => self.handle_command_key(key.code),
            Some(Dialog::Help) => LoopAction::Continue,
            Some(Dialog::Text { purpose, text }) => self.handle_text_key(purpose, text, key.code),
            Some(Dialog::Confirm { target, reason }) => self.handle_confirm_key(target, reason, key.code),
        }
    }

    /// Inserts pasted text into the text input. Pasted text never runs a command.
    pub(super) fn handle_paste(&mut self, pasted: &str) -> LoopAction {
        if let Some(Dialog::Text { text, .. }) = &mut self.dialog
            && !self.is_too_small
        {
            let letters =
                pasted.trim().chars().map(|letter| if letter.is_whitespace() { ' ' } else { letter });
            let space_left = MAX_TEXT_CHARS.saturating_sub(text.chars().count());
            text.extend(letters.filter(|letter| is_printable(*letter)).take(space_left));
        }
        LoopAction::Continue
    }

    fn handle_command_key(&mut self, key: KeyCode) -> LoopAction {
        self.notice = None;
        match key {
            KeyCode::Char('q') => return LoopAction::Quit,
            KeyCode::Esc if self.shows_queues => self.close_queues(),
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.dialog = Some(Dialog::Help),
            KeyCode::Tab => self.panel = self.next_panel(),
            KeyCode::Up => return self.move_selection(-1),
            KeyCode::Down => return self.move_selection(1),
            KeyCode::PageUp => return self.move_selection(-PAGE_LINES),
            KeyCode::PageDown => return self.move_selection(PAGE_LINES),
            KeyCode::Home => return self.move_selection(isize::MIN),
            KeyCode::End => return self.move_selection(isize::MAX),
            KeyCode::Enter if self.panel == Panel::Sessions => self.panel = Panel::Players,
            KeyCode::Enter if self.shows_queues => self.close_queues(),
            KeyCode::Enter if self.selected_player().is_some() => {
                (self.shows_queues, self.scroll_offset) = (true, 0);
            }
            KeyCode::Char('s') => self.sort_by_next_column(),
            KeyCode::Char('r') => {
                self.is_reversed = !self.is_reversed;
                self.sort_players();
            }
            KeyCode::Char('g') => self.first_plot = (self.first_plot + 4) % PLOTS.len(),
            KeyCode::Char('a') => {
                self.is_all_sessions = !self.is_all_sessions;
                return self.request_session();
            }
            KeyCode::Char('t') => {
                self.dialog = self.selected_port.map(|port| text_dialog(Purpose::Say { port }))
            }
            KeyCode::Char('w') => self.open_player_dialog(Purpose::PrivateMessage),
            KeyCode::Char('k') => self.open_player_dialog(Purpose::KickReason),
            #[cfg(debug_assertions)]
            KeyCode::F(12) => panic!("panic by the key F12, for tests"),
            _ => {}
        }
        LoopAction::Continue
    }

    fn next_panel(&self) -> Panel {
        match self.panel {
            Panel::Sessions => Panel::Players,
            Panel::Players => Panel::Bottom,
            Panel::Bottom if self.status.sessions.len() > 1 => Panel::Sessions,
            Panel::Bottom => Panel::Players,
        }
    }

    /// Closes the view of a player's queues.
    fn close_queues(&mut self) {
        (self.shows_queues, self.scroll_offset) = (false, 0);
    }

    fn sort_by_next_column(&mut self) {
        if self.panel == Panel::Sessions {
            self.are_sessions_by_players = !self.are_sessions_by_players;
            self.sort_sessions();
            return;
        }
        let at = PlayerOrder::ALL.iter().position(|order| *order == self.order).unwrap_or(0);
        self.order = PlayerOrder::ALL[(at + 1) % PlayerOrder::ALL.len()];
        self.is_reversed = false;
        self.sort_players();
    }

    /// Moves the selection, or scrolls, by `by` lines.
    fn move_selection(&mut self, by: isize) -> LoopAction {
        match self.panel {
            Panel::Players => {
                let peers: Vec<u8> = self.players.iter().map(|player| player.peer).collect();
                self.selected_peer = shift_selection(&peers, self.selected_peer, by);
                self.scroll_offset = if self.shows_queues { 0 } else { self.scroll_offset };
                LoopAction::Continue
            }
            // The view limits the offset to the end of the text.
            Panel::Bottom if self.shows_queues => {
                self.scroll_offset = self.scroll_offset.saturating_add_signed(by);
                LoopAction::Continue
            }
            Panel::Bottom => {
                let back = by.checked_neg().unwrap_or(isize::MAX);
                self.scroll_offset = self.scroll_offset.saturating_add_signed(back).min(self.log.len());
                LoopAction::Continue
            }
            Panel::Sessions => {
                let ports: Vec<u16> = self.status.sessions.iter().map(|session| session.port).collect();
                let port = shift_selection(&ports, self.selected_port, by);
                if port == self.selected_port {
                    return LoopAction::Continue;
                }
                (self.selected_port, self.selected_peer) = (port, None);
                self.players.clear();
                if !self.is_all_sessions {
                    self.samples.clear();
                }
                self.request_session()
            }
        }
    }

    /// Requests the data of the selected session.
    fn request_session(&self) -> LoopAction {
        let is_whole = self.is_all_sessions;
        self.selected_port.map_or(LoopAction::Continue, |port| {
            LoopAction::Send(ServerRequest::Select { port, is_all_sessions: is_whole })
        })
    }

    fn open_player_dialog(&mut self, purpose: fn(TargetPlayer) -> Purpose) {
        match self.target_player() {
            Some(target) => self.dialog = Some(text_dialog(purpose(target))),
            None => self.notice = Some(Err("no player is selected".into())),
        }
    }

    fn target_player(&self) -> Option<TargetPlayer> {
        let (port, player) = (self.selected_port?, self.selected_player()?);
        let (name, address) = (player.name.0.clone(), player.address.0.clone());
        Some(TargetPlayer { port, peer: player.peer, name, address })
    }

    /// Handles a key in a text input.
    fn handle_text_key(&mut self, purpose: Purpose, mut text: String, key: KeyCode) -> LoopAction {
        match key {
            KeyCode::Esc => return LoopAction::Continue,
            KeyCode::Enter => return self.submit_text(purpose, text),
            KeyCode::Backspace => drop(text.pop()),
            KeyCode::Char(letter) if is_printable(letter) && text.chars().count() < MAX_TEXT_CHARS => {
                text.push(letter)
            }
            _ => {}
        }
        self.dialog = Some(Dialog::Text { purpose, text });
        LoopAction::Continue
    }

    /// Handles a finished text input.
    fn submit_text(&mut self, purpose: Purpose, text: String) -> LoopAction {
        let (port, request) = match purpose {
            Purpose::KickReason(target) => {
                self.dialog = Some(Dialog::Confirm { target, reason: text });
                return LoopAction::Continue;
            }
            // An empty message is not sent.
            _ if text.trim().is_empty() => return LoopAction::Continue,
            Purpose::Say { port } => (port, Request::Say { to: None, text: vec![text] }),
            Purpose::PrivateMessage(target) if !self.is_still_connected(&target) => {
                return self.report_left(&target);
            }
            Purpose::PrivateMessage(target) => {
                (target.port, Request::Say { to: Some(format!("#{}", target.peer)), text: vec![text] })
            }
        };
        self.send_request(port, request)
    }

    /// Handles a key in the confirmation of a kick.
    fn handle_confirm_key(&mut self, target: TargetPlayer, reason: String, key: KeyCode) -> LoopAction {
        match key {
            KeyCode::Char('y' | 'Y') if !self.is_still_connected(&target) => self.report_left(&target),
            KeyCode::Char('y' | 'Y') => {
                let reason = Some(reason).filter(|reason| !reason.trim().is_empty());
                self.send_request(target.port, Request::Kick { player: format!("#{}", target.peer), reason })
            }
            KeyCode::Char('n' | 'N') | KeyCode::Esc => LoopAction::Continue,
            _ => {
                self.dialog = Some(Dialog::Confirm { target, reason });
                LoopAction::Continue
            }
        }
    }

    /// Returns whether the player with this peer id still has the same address.
    fn is_still_connected(&self, target: &TargetPlayer) -> bool {
        let is_target = |address: &str| address == target.address && self.selected_port == Some(target.port);
        self.players.iter().any(|player| player.peer == target.peer && is_target(&player.address.0))
    }

    fn report_left(&mut self, target: &TargetPlayer) -> LoopAction {
        self.notice = Some(Err(format!("{} has left", target.name)));
        LoopAction::Continue
    }

    fn send_request(&self, port: u16, request: Request) -> LoopAction {
        let (session, by) = (Some(port.to_string()), self.by.clone());
        LoopAction::Send(ServerRequest::Execute(Envelope { session, by, request }))
    }
}

const fn text_dialog(purpose: Purpose) -> Dialog {
    Dialog::Text { purpose, text: String::new() }
}

/// Returns the item of `all` that is `by` places after the selected one.
fn shift_selection<T: Copy + PartialEq>(all: &[T], selected: Option<T>, by: isize) -> Option<T> {
    let last = all.len().checked_sub(1)?;
    let at = all.iter().position(|one| Some(*one) == selected);
    all.get(at.map_or(0, |at| at.saturating_add_signed(by).min(last))).copied()
}

/// The number of lines of a page.
const PAGE_LINES: isize = 10;
/// The maximum length of a text input.
const MAX_TEXT_CHARS: usize = 200;
