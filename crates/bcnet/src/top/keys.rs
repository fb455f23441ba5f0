//! What keys do.

use bcnet_control::{Envelope, Request};
use bcnet_transport::wire::is_shown;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::link::Wish;
use super::state::{Order, Panel, State};
use crate::plots::PLOTS;

/// What comes after something has happened.
pub(super) enum Step {
    Stay,
    Quit,
    Ask(Wish),
}

/// What is asked of the person at the keyboard, in front of everything else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Dialog {
    Help,
    /// A line of text, and what for.
    Text {
        purpose: Purpose,
        text: String,
    },
    /// Whether somebody is really to be thrown out.
    Confirm {
        target: Target,
        reason: String,
    },
}

/// What a line of text is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Purpose {
    /// For the chat of a session.
    Say { port: u16 },
    /// For one player.
    Word(Target),
    /// Why a player is thrown out.
    Reason(Target),
}

/// A player whom something is done to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    port: u16,
    peer: u8,
    pub(super) name: String,
    address: String,
}

impl State {
    pub(super) fn press(&mut self, key: KeyEvent) -> Step {
        // Letters that need AltGr come with both on Windows.
        let is_typed = key.modifiers.contains(KeyModifiers::ALT);
        if key.modifiers.contains(KeyModifiers::CONTROL) && !is_typed {
            return if matches!(key.code, KeyCode::Char('c' | 'C')) { Step::Quit } else { Step::Stay };
        }
        if self.is_hidden {
            // Nobody does to players what nobody can see.
            return if key.code == KeyCode::Char('q') { Step::Quit } else { Step::Stay };
        }
        match self.dialog.take() {
            None => self.command(key.code),
            Some(Dialog::Help) => Step::Stay,
            Some(Dialog::Text { purpose, text }) => self.edit(purpose, text, key.code),
            Some(Dialog::Confirm { target, reason }) => self.confirm(target, reason, key.code),
        }
    }

    /// Takes pasted text as a part of the line that is typed. It is no command, whatever lines it has.
    pub(super) fn paste(&mut self, pasted: &str) -> Step {
        if let Some(Dialog::Text { text, .. }) = &mut self.dialog
            && !self.is_hidden
        {
            let letters =
                pasted.trim().chars().map(|letter| if letter.is_whitespace() { ' ' } else { letter });
            let room = MAX_TEXT.saturating_sub(text.chars().count());
            text.extend(letters.filter(|letter| is_shown(*letter)).take(room));
        }
        Step::Stay
    }

    fn command(&mut self, key: KeyCode) -> Step {
        self.notice = None;
        match key {
            KeyCode::Char('q') => return Step::Quit,
            KeyCode::Esc if self.is_detailed => self.close(),
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.dialog = Some(Dialog::Help),
            KeyCode::Tab => self.panel = self.next_panel(),
            KeyCode::Up => return self.go(-1),
            KeyCode::Down => return self.go(1),
            KeyCode::PageUp => return self.go(-PAGE),
            KeyCode::PageDown => return self.go(PAGE),
            KeyCode::Home => return self.go(isize::MIN),
            KeyCode::End => return self.go(isize::MAX),
            KeyCode::Enter if self.panel == Panel::Sessions => self.panel = Panel::Players,
            KeyCode::Enter if self.is_detailed => self.close(),
            KeyCode::Enter if self.player().is_some() => {
                (self.is_detailed, self.scrolled) = (true, 0);
            }
            KeyCode::Char('s') => self.sort_next(),
            KeyCode::Char('r') => {
                self.is_reversed = !self.is_reversed;
                self.sort();
            }
            KeyCode::Char('g') => self.first_plot = (self.first_plot + 4) % PLOTS.len(),
            KeyCode::Char('a') => {
                self.is_whole = !self.is_whole;
                return self.look();
            }
            KeyCode::Char('t') => self.dialog = self.port.map(|port| ask_for(Purpose::Say { port })),
            KeyCode::Char('w') => self.ask_about_player(Purpose::Word),
            KeyCode::Char('k') => self.ask_about_player(Purpose::Reason),
            #[cfg(debug_assertions)]
            KeyCode::F(12) => panic!("asked for"),
            _ => {}
        }
        Step::Stay
    }

    fn next_panel(&self) -> Panel {
        match self.panel {
            Panel::Sessions => Panel::Players,
            Panel::Players => Panel::Below,
            Panel::Below if self.status.sessions.len() > 1 => Panel::Sessions,
            Panel::Below => Panel::Players,
        }
    }

    /// Closes the queues of a player.
    fn close(&mut self) {
        (self.is_detailed, self.scrolled) = (false, 0);
    }

    fn sort_next(&mut self) {
        if self.panel == Panel::Sessions {
            self.is_by_players = !self.is_by_players;
            self.sort_sessions();
            return;
        }
        let at = Order::ALL.iter().position(|order| *order == self.order).unwrap_or(0);
        self.order = Order::ALL[(at + 1) % Order::ALL.len()];
        self.is_reversed = false;
        self.sort();
    }

    /// Moves in the panel by so many lines.
    fn go(&mut self, by: isize) -> Step {
        match self.panel {
            Panel::Players => {
                let peers: Vec<u8> = self.players.iter().map(|player| player.peer).collect();
                self.peer = moved(&peers, self.peer, by);
                self.scrolled = if self.is_detailed { 0 } else { self.scrolled };
                Step::Stay
            }
            // The view knows where the end is.
            Panel::Below if self.is_detailed => {
                self.scrolled = self.scrolled.saturating_add_signed(by);
                Step::Stay
            }
            Panel::Below => {
                let back = by.checked_neg().unwrap_or(isize::MAX);
                self.scrolled = self.scrolled.saturating_add_signed(back).min(self.log.len());
                Step::Stay
            }
            Panel::Sessions => {
                let ports: Vec<u16> = self.status.sessions.iter().map(|session| session.port).collect();
                let port = moved(&ports, self.port, by);
                if port == self.port {
                    return Step::Stay;
                }
                (self.port, self.peer) = (port, None);
                self.players.clear();
                if !self.is_whole {
                    self.samples.clear();
                }
                self.look()
            }
        }
    }

    /// Has the picked session looked at from now on.
    fn look(&self) -> Step {
        let is_whole = self.is_whole;
        self.port.map_or(Step::Stay, |port| Step::Ask(Wish::Look { port, is_whole }))
    }

    fn ask_about_player(&mut self, purpose: fn(Target) -> Purpose) {
        match self.target() {
            Some(target) => self.dialog = Some(ask_for(purpose(target))),
            None => self.notice = Some(Err("nobody is picked".into())),
        }
    }

    fn target(&self) -> Option<Target> {
        let (port, player) = (self.port?, self.player()?);
        let (name, address) = (player.name.0.clone(), player.address.0.clone());
        Some(Target { port, peer: player.peer, name, address })
    }

    /// A key came while a line is typed.
    fn edit(&mut self, purpose: Purpose, mut text: String, key: KeyCode) -> Step {
        match key {
            KeyCode::Esc => return Step::Stay,
            KeyCode::Enter => return self.finish(purpose, text),
            KeyCode::Backspace => drop(text.pop()),
            KeyCode::Char(letter) if is_shown(letter) && text.chars().count() < MAX_TEXT => text.push(letter),
            _ => {}
        }
        self.dialog = Some(Dialog::Text { purpose, text });
        Step::Stay
    }

    /// A line was typed.
    fn finish(&mut self, purpose: Purpose, text: String) -> Step {
        let (port, request) = match purpose {
            Purpose::Reason(target) => {
                self.dialog = Some(Dialog::Confirm { target, reason: text });
                return Step::Stay;
            }
            // There is nothing to say.
            _ if text.trim().is_empty() => return Step::Stay,
            Purpose::Say { port } => (port, Request::Say { to: None, text: vec![text] }),
            Purpose::Word(target) if !self.is_there(&target) => return self.has_left(&target),
            Purpose::Word(target) => {
                (target.port, Request::Say { to: Some(format!("#{}", target.peer)), text: vec![text] })
            }
        };
        self.ask(port, request)
    }

    /// A key came while it is asked whether a player is to be thrown out.
    fn confirm(&mut self, target: Target, reason: String, key: KeyCode) -> Step {
        match key {
            KeyCode::Char('y' | 'Y') if !self.is_there(&target) => self.has_left(&target),
            KeyCode::Char('y' | 'Y') => {
                let reason = Some(reason).filter(|reason| !reason.trim().is_empty());
                self.ask(target.port, Request::Kick { player: format!("#{}", target.peer), reason })
            }
            KeyCode::Char('n' | 'N') | KeyCode::Esc => Step::Stay,
            _ => {
                self.dialog = Some(Dialog::Confirm { target, reason });
                Step::Stay
            }
        }
    }

    /// Returns whether nobody else has a player's id by now.
    fn is_there(&self, target: &Target) -> bool {
        let is_it = |address: &str| address == target.address && self.port == Some(target.port);
        self.players.iter().any(|player| player.peer == target.peer && is_it(&player.address.0))
    }

    fn has_left(&mut self, target: &Target) -> Step {
        self.notice = Some(Err(format!("{} has left", target.name)));
        Step::Stay
    }

    fn ask(&self, port: u16, request: Request) -> Step {
        let (session, by) = (Some(port.to_string()), self.by.clone());
        Step::Ask(Wish::Do(Envelope { session, by, request }))
    }
}

const fn ask_for(purpose: Purpose) -> Dialog {
    Dialog::Text { purpose, text: String::new() }
}

/// Returns which of `all` is picked, so many places further.
fn moved<T: Copy + PartialEq>(all: &[T], picked: Option<T>, by: isize) -> Option<T> {
    let last = all.len().checked_sub(1)?;
    let at = all.iter().position(|one| Some(*one) == picked);
    all.get(at.map_or(0, |at| at.saturating_add_signed(by).min(last))).copied()
}

/// What a page is, in lines.
const PAGE: isize = 10;
/// As many letters as may be typed.
const MAX_TEXT: usize = 200;
