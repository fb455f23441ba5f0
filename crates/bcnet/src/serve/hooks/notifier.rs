//! Copies session events into a queue for the hooks.
//!
//! Worker threads call this module, so the queue never blocks: if the queue is full, the event is dropped and
//! counted.

use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};

use bcnet_session::{Event, RoundSummary, Session};
use bcnet_transport::wire::PeerId;
use bcnet_udp::wall_now;

use crate::bans::Timestamp;
use crate::config::HookEvent;
use crate::join::CHECK_NAME;
use crate::serve::event_log::{ShutdownReason, leave_reason};

/// An event of a session, with the state of the session at that time.
#[derive(Debug)]
pub(super) struct Notification {
    pub(super) at: Timestamp,
    pub(super) session: String,
    pub(super) port: u16,
    /// Players in the game, and the player limit.
    pub(super) players: usize,
    pub(super) limit: usize,
    pub(super) event: NotificationEvent,
}

#[derive(Debug)]
pub(super) enum NotificationEvent {
    Joined { player: String },
    Left { player: String, reason: String },
    RoundEnded(RoundSummary),
    Full,
    MasterLost { master: SocketAddrV4 },
}

impl NotificationEvent {
    pub(super) const fn kind(&self) -> HookEvent {
        match self {
            Self::Joined { .. } => HookEvent::Joined,
            Self::Left { .. } => HookEvent::Left,
            Self::RoundEnded(_) => HookEvent::RoundEnded,
            Self::Full => HookEvent::Full,
            Self::MasterLost { .. } => HookEvent::MasterLost,
        }
    }
}

/// The events that at least one hook subscribed to.
#[derive(Debug, Clone, Default)]
pub(super) struct SubscribedEvents(Arc<AtomicU8>);

impl SubscribedEvents {
    pub(super) fn set(&self, events: impl Iterator<Item = HookEvent>) {
        self.0.store(events.fold(0, |all, event| all | event_bit(event)), Ordering::Relaxed);
    }

    fn contains(&self, event: HookEvent) -> bool {
        self.0.load(Ordering::Relaxed) & event_bit(event) != 0
    }
}

const fn event_bit(event: HookEvent) -> u8 {
    1 << event as u8
}

/// Counts the events that were dropped before they reached the hooks, by kind.
#[derive(Debug, Clone, Default)]
pub(super) struct DroppedEvents(Arc<[AtomicU64; HookEvent::ALL.len()]>);

impl DroppedEvents {
    pub(super) fn add(&self, event: HookEvent) {
        self.counter(event).fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number since the last call.
    pub(super) fn take(&self, event: HookEvent) -> u64 {
        self.counter(event).swap(0, Ordering::Relaxed)
    }

    fn counter(&self, event: HookEvent) -> &AtomicU64 {
        &self.0[event as usize]
    }
}

/// Sends the events of one session to the hooks. It belongs to a worker thread.
#[derive(Debug, Default)]
pub(in crate::serve) struct Notifier {
    sender: Option<NotificationSender>,
    /// Players in the game whose `joined` event was sent.
    announced: Vec<PeerId>,
}

/// The queue to the thread that distributes notifications to the hooks.
#[derive(Debug, Clone)]
pub(super) struct NotificationSender {
    pub(super) subscribed: SubscribedEvents,
    pub(super) queue: SyncSender<Notification>,
    pub(super) dropped: DroppedEvents,
}

impl Notifier {
    pub(super) const fn new(sender: NotificationSender) -> Self {
        Self { sender: Some(sender), announced: Vec::new() }
    }

    /// Forgets all players, because a new and empty session starts.
    pub(in crate::serve) fn reset(&mut self) {
        self.announced.clear();
    }

    /// Sends a notification for a session event, if a hook subscribed to it.
    pub(in crate::serve) fn on_event(
        &mut self,
        event: &Event,
        shutdown_reason: ShutdownReason,
        session: &Session,
        port: u16,
    ) {
        let limit = usize::from(session.config().player_limit);
        match event {
            // Join checks by monitoring are not announced.
            Event::InGame { name, .. } if name == CHECK_NAME => {}
            Event::InGame { peer, name } => {
                self.announced.push(*peer);
                self.notify(NotificationEvent::Joined { player: name.clone() }, session, port);
                if session.players_in_game() >= limit {
                    tracing::info!(event = "full", port, players = limit);
                    self.notify(NotificationEvent::Full, session, port);
                }
            }
            Event::Left { peer, name, reason, .. } => {
                // Players who never entered the game were not announced.
                if let Some(at) = self.announced.iter().position(|inside| inside == peer) {
                    self.announced.swap_remove(at);
                    let reason = leave_reason(*reason, shutdown_reason);
                    self.notify(NotificationEvent::Left { player: name.clone(), reason }, session, port);
                }
            }
            // Rounds without players, or with join checks only, are not announced.
            Event::RoundEnded { summary } if summary.players.iter().all(|one| one.name == CHECK_NAME) => {}
            Event::RoundEnded { summary } => {
                self.notify(NotificationEvent::RoundEnded(summary.clone()), session, port)
            }
            Event::MasterLost { master } => {
                self.notify(NotificationEvent::MasterLost { master: *master }, session, port);
            }
            Event::Joining { .. }
            | Event::Joined { .. }
            | Event::Chat { .. }
            | Event::Game { .. }
            | Event::Refused { .. }
            | Event::ChecksumMismatch { .. }
            | Event::ManifestLearned { .. }
            | Event::Anomaly { .. }
            | Event::RoundStarted { .. }
            | Event::MasterSeen { .. } => {}
        }
    }

    fn notify(&self, event: NotificationEvent, session: &Session, port: u16) {
        let Some(sender) = self.sender.as_ref().filter(|sender| sender.subscribed.contains(event.kind()))
        else {
            return;
        };
        let notification = Notification {
            at: Timestamp(wall_now().as_secs()),
            session: session.config().name.clone(),
            port,
            players: session.players_in_game(),
            limit: usize::from(session.config().player_limit),
            event,
        };
        if let Err(TrySendError::Full(notification) | TrySendError::Disconnected(notification)) =
            sender.queue.try_send(notification)
        {
            sender.dropped.add(notification.event.kind());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::mpsc;
    use std::time::Duration;

    use bcnet_session::{Config, EndReason, Participant, Score, System};
    use bcnet_transport::LeaveReason;

    use super::*;

    fn received_kinds(queue: &mpsc::Receiver<Notification>) -> Vec<HookEvent> {
        queue.try_iter().map(|notification| notification.event.kind()).collect()
    }

    /// A failed session reports no departures, and the new session assigns the same ids again.
    #[test]
    fn reset_forgets_players_of_a_failed_session() {
        let (queue_sender, queue) = mpsc::sync_channel(9);
        let sender = NotificationSender {
            subscribed: SubscribedEvents::default(),
            queue: queue_sender,
            dropped: DroppedEvents::default(),
        };
        sender.subscribed.set(HookEvent::ALL.into_iter());
        let (mut notifier, session) = (Notifier::new(sender), Session::new(Config::default(), 1));
        let (peer, name) = (PeerId(2), "Alice".to_owned());
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1);
        let left = Event::Left { peer, name: name.clone(), address, reason: LeaveReason::Disconnected };
        for is_reset in [false, true] {
            notifier.on_event(
                &Event::InGame { peer, name: name.clone() },
                ShutdownReason::ServerStopped,
                &session,
                22101,
            );
            if is_reset {
                notifier.reset();
            }
            notifier.on_event(&left, ShutdownReason::ServerStopped, &session, 22101);
            let expected = [HookEvent::Joined, HookEvent::Left];
            assert_eq!(received_kinds(&queue), expected[..if is_reset { 1 } else { 2 }]);
        }
    }

    #[test]
    fn join_checks_are_not_announced() {
        let (queue_sender, queue) = mpsc::sync_channel(9);
        let sender = NotificationSender {
            subscribed: SubscribedEvents::default(),
            queue: queue_sender,
            dropped: DroppedEvents::default(),
        };
        sender.subscribed.set(HookEvent::ALL.into_iter());
        let (mut notifier, session) = (Notifier::new(sender), Session::new(Config::default(), 1));
        let participant = |name: &str| Participant {
            name: name.into(),
            score: Score::default(),
            played: Duration::from_secs(1),
        };
        for (name, expected) in [("bcnet", vec![]), ("Bcnet", HookEvent::ALL[..3].to_vec())] {
            let (peer, address) = (PeerId(2), SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1));
            let summary = RoundSummary {
                round: 1,
                system: System::default(),
                duration: Duration::from_secs(1),
                reason: EndReason::Empty,
                players: vec![participant(name)],
            };
            let name = name.to_owned();
            notifier.on_event(
                &Event::InGame { peer, name: name.clone() },
                ShutdownReason::ServerStopped,
                &session,
                22101,
            );
            notifier.on_event(
                &Event::Left { peer, name, address, reason: LeaveReason::Disconnected },
                ShutdownReason::ServerStopped,
                &session,
                22101,
            );
            notifier.on_event(&Event::RoundEnded { summary }, ShutdownReason::ServerStopped, &session, 22101);
            assert_eq!(received_kinds(&queue), expected);
        }
    }

    #[test]
    fn events_dropped_by_a_full_queue_are_counted_by_kind() {
        let (queue_sender, queue) = mpsc::sync_channel(1);
        let sender = NotificationSender {
            subscribed: SubscribedEvents::default(),
            queue: queue_sender,
            dropped: DroppedEvents::default(),
        };
        sender.subscribed.set(HookEvent::ALL.into_iter());
        let dropped = sender.dropped.clone();
        let (mut notifier, session) = (Notifier::new(sender), Session::new(Config::default(), 1));
        let master = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 27900);
        for _ in 0..3 {
            notifier.on_event(&Event::MasterLost { master }, ShutdownReason::ServerStopped, &session, 22101);
        }
        notifier.on_event(
            &Event::InGame { peer: PeerId(2), name: "Alice".into() },
            ShutdownReason::ServerStopped,
            &session,
            22101,
        );
        assert_eq!(received_kinds(&queue), [HookEvent::MasterLost]);
        assert_eq!(HookEvent::ALL.map(|event| dropped.take(event)), [1, 0, 0, 0, 2]);
        assert_eq!(dropped.take(HookEvent::MasterLost), 0, "`take` resets the counter");
    }
}
