//! What a hook is told, and how it gets away from the threads that play: copied into a queue that never waits.

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

/// Something that happened in a session.
#[derive(Debug)]
pub(super) struct Notification {
    pub(super) at: Timestamp,
    pub(super) session: String,
    pub(super) port: u16,
    /// How many take part, and how many can.
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

/// Which events any hook wants to be told of.
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

/// How many found no room on their way to the hooks, of each event.
#[derive(Debug, Clone, Default)]
pub(super) struct DroppedEvents(Arc<[AtomicU64; HookEvent::ALL.len()]>);

impl DroppedEvents {
    pub(super) fn add(&self, event: HookEvent) {
        self.counter(event).fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how many there were since this was called last.
    pub(super) fn take(&self, event: HookEvent) -> u64 {
        self.counter(event).swap(0, Ordering::Relaxed)
    }

    fn counter(&self, event: HookEvent) -> &AtomicU64 {
        &self.0[event as usize]
    }
}

/// Tells of one session. It belongs to the thread that plays.
#[derive(Debug, Default)]
pub(in crate::serve) struct Notifier {
    sender: Option<NotificationSender>,
    /// Who takes part, as far as was told.
    announced: Vec<PeerId>,
}

/// The way to the thread that hands notices to the hooks.
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

    /// The session begins anew with nobody in it, whatever was told of the one before.
    pub(in crate::serve) fn reset(&mut self) {
        self.announced.clear();
    }

    /// Looks at an event before it is logged.
    pub(in crate::serve) fn on_event(
        &mut self,
        event: &Event,
        shutdown_reason: ShutdownReason,
        session: &Session,
        port: u16,
    ) {
        let limit = usize::from(session.config().player_limit);
        match event {
            // A monitor looks whether players can join, day and night.
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
                // Who never got in was never told of.
                if let Some(at) = self.announced.iter().position(|inside| inside == peer) {
                    self.announced.swap_remove(at);
                    let reason = leave_reason(*reason, shutdown_reason);
                    self.notify(NotificationEvent::Left { player: name.clone(), reason }, session, port);
                }
            }
            // A round in which nobody took part is of interest to nobody.
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
            | Event::Refused { .. }
            | Event::ChecksumMismatch { .. }
            | Event::ManifestLearned { .. }
            | Event::Anomaly { .. }
            | Event::RoundStarted { .. }
            | Event::MasterSeen { .. } => {}
        }
    }

    fn notify(&self, event: NotificationEvent, session: &Session, port: u16) {
        let Some(sender) = self.sender.as_ref().filter(|way| way.subscribed.contains(event.kind())) else {
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
        queue.try_iter().map(|notice| notice.event.kind()).collect()
    }

    /// A session that has failed does not tell who was in it, and ids are given out again.
    #[test]
    fn reset_forgets_players_of_a_failed_session() {
        let (notices, queue) = mpsc::sync_channel(9);
        let sender = NotificationSender {
            subscribed: SubscribedEvents::default(),
            queue: notices,
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
        let (notices, queue) = mpsc::sync_channel(9);
        let sender = NotificationSender {
            subscribed: SubscribedEvents::default(),
            queue: notices,
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
        let (notices, queue) = mpsc::sync_channel(1);
        let sender = NotificationSender {
            subscribed: SubscribedEvents::default(),
            queue: notices,
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
        assert_eq!(dropped.take(HookEvent::MasterLost), 0, "they are told once");
    }
}
