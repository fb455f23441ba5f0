//! Observes the forwarded conversations: reports findings and dumps queues.

use std::io::{self, Write as _};
use std::net::SocketAddrV4;
use std::time::Duration;

use bcnet_observe::{Content, Finding, HandledAck, Observed, Observer, ObserverLimits, Side};
use bcnet_transport::Time;
use tracing_appender::non_blocking::{NonBlocking, WorkerGuard};

use super::annotated_recorder::{AnnotatedRecorder, PendingDatagram};
use crate::log::LogRateLimiter;
use crate::queue_dump::QueueDump;
use crate::recorder::Recorder;

/// Observes every forwarded datagram, logs findings and writes the capture.
pub(super) struct ProxyObserver {
    observer: Observer,
    dump_interval: Option<Duration>,
    next_dump: Option<Time>,
    /// The capture, if one is written.
    recorder: Option<AnnotatedRecorder>,
    /// The time of the last call of [`Self::advance`].
    last_advance: Time,
    /// The number of datagrams so far.
    datagram_count: u64,
    log_limit: LogRateLimiter,
    /// The count of each kind of fault, in the order of their first occurrence. There are few kinds.
    fault_counts: Vec<(&'static str, u64)>,
    /// A non-blocking output for the queues: a reader that does not read must not delay the game.
    output: NonBlocking,
    _writer: WorkerGuard,
}

impl ProxyObserver {
    /// Creates an observer.
    ///
    /// It prints the queues every `every`, if that is set. It writes a capture with findings if there is a
    /// `recorder`, and logs each handled ACK if `acks` is set.
    pub(super) fn new(every: Option<Duration>, recorder: Option<Recorder>, acks: bool) -> Self {
        let (output, writer) = tracing_appender::non_blocking(io::stdout());
        let mut observer = Observer::new(LIMITS);
        if acks {
            observer.track_handled_acks();
        }
        Self {
            observer,
            dump_interval: every,
            next_dump: every.map(|every| Time::ZERO + every),
            recorder: recorder.map(AnnotatedRecorder::new),
            last_advance: Time::ZERO,
            datagram_count: 0,
            log_limit: LogRateLimiter::new(10, Duration::from_secs(1)),
            fault_counts: Vec::new(),
            output,
            _writer: writer,
        }
    }

    /// Returns the count of each kind of fault.
    pub(super) fn fault_counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.fault_counts.iter().copied()
    }

    /// Observes a datagram from one address to another.
    ///
    /// `wire` are its bytes as sent; `wall` is the time since 1970.
    pub(super) fn observe(
        &mut self,
        (from, to): (SocketAddrV4, SocketAddrV4),
        (wire, content): (&[u8], &Content<'_>),
        now: Time,
        wall: Duration,
    ) {
        self.datagram_count += 1;
        let number = self.datagram_count;
        let conversation = match self.observer.observe(number, now, from, to, content) {
            Observed::Datagram(_, id, _) | Observed::Malformed(_, id, _) => Some(id),
            Observed::GameSpy(_) | Observed::Foreign(_) => None,
        };
        while let Some(handled) = conversation.and_then(|id| self.observer.poll_handled_ack(id)) {
            self.log_ack(&handled);
        }
        if let Some(tape) = &mut self.recorder {
            let (bytes, remark) = (tape.copy_bytes(wire), String::new());
            tape.push(PendingDatagram {
                mark: number,
                conversation,
                from,
                to,
                at: now,
                wall,
                bytes,
                comment: remark,
            });
        }
        self.drain_findings(now);
        self.record_final(now);
    }

    /// Logs the effect of an ACK, as a hook in the stock engine would.
    fn log_ack(&self, handled: &HandledAck) {
        let Some(conversation) = self.observer.conversation(handled.conversation) else { return };
        let (by, from) = (conversation.address(handled.side), conversation.address(handled.side.other()));
        let text = handled.to_string();
        let mut lines = text.lines();
        let head = lines.next().unwrap_or_default();
        let waiting = lines.map(str::trim).collect::<Vec<_>>().join(", ");
        let cleared = handled.cleared_position().is_some();
        tracing::info!(event = "handle_ack", %by, %from, cleared, waiting, "{head}");
    }

    /// Counts and logs new findings, and adds them to the capture.
    fn drain_findings(&mut self, now: Time) {
        while let Some(finding) = self.observer.poll_finding() {
            if !finding.kind.is_fault() {
                continue;
            }
            self.count_fault(finding.kind.name());
            if let Some(held_back) = self.log_limit.allow(now) {
                log_finding(&finding, held_back);
            }
            if let Some(tape) = &mut self.recorder {
                tape.add_comment(&finding);
            }
        }
    }

    /// Writes the datagrams whose findings are final.
    fn record_final(&mut self, now: Time) {
        while let Some((conversation, mark)) =
            self.recorder.as_mut().and_then(|tape| tape.record_final(&self.observer, now))
        {
            self.observer.finalize_findings(conversation, mark, now);
            self.drain_findings(now);
        }
    }

    fn count_fault(&mut self, kind: &'static str) {
        match self.fault_counts.iter_mut().find(|(name, _)| *name == kind) {
            Some((_, count)) => *count += 1,
            None => self.fault_counts.push((kind, 1)),
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        let waiting = self.recorder.as_ref().is_some_and(AnnotatedRecorder::has_pending);
        let look = waiting.then(|| self.last_advance + POLL_INTERVAL);
        [self.next_dump, look].into_iter().flatten().min()
    }

    /// Advances the time.
    pub(super) fn advance(&mut self, now: Time, wall: Duration) {
        self.last_advance = now;
        self.observer.advance(now);
        self.drain_findings(now);
        self.record_final(now);
        if let (Some(every), Some(next)) = (self.dump_interval, self.next_dump)
            && next <= now
        {
            self.next_dump = Some(now + every);
            self.dump_queues(now, wall);
        }
    }

    /// Prints the queues of both sides of every conversation. `wall` is the time since 1970.
    pub(super) fn dump_queues(&mut self, now: Time, wall: Duration) {
        let mut out = String::new();
        for conversation in self.observer.conversations() {
            for side in [Side::First, Side::Second] {
                if let Some(dump) = QueueDump::take(&self.observer, conversation, side, now) {
                    dump.write(&mut out, wall);
                }
            }
        }
        drop(self.output.write_all(out.as_bytes()));
    }
}

fn log_finding(Finding { by: from, to, kind: what, .. }: &Finding, held_back: u64) {
    tracing::info!(event = "finding", kind = what.name(), %from, %to, held_back, "{what}");
}

/// The interval at which waiting datagrams are checked if no datagram arrives.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
const LIMITS: ObserverLimits = ObserverLimits { conversations: 256, messages: 512, findings: 256 };

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;

    use bcnet_lab::{RunOptions, Scenario, World};
    use bcnet_observe::{MessageBuffer, NO_MARK};
    use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
    use pcap_file::pcapng::{Block, PcapNgReader};

    use super::*;
    use crate::recorder::CaptureRing;

    /// The cause of many faults is known only later: when an ACK of a retransmission arrives, or fails to.
    #[test]
    fn recorded_datagrams_carry_all_comments() {
        let battle = include_str!("../../../bcnet-lab/scenarios/battle-loss5.toml");
        let battle =
            battle.replace("duration = 600.0", "duration = 60.0").replace("loss = 0.05", "loss = 0.1");
        let scenario = Scenario::parse(&battle).expect("a scenario");
        let datagrams = bcnet_lab::capture_datagrams(&scenario, &RunOptions::default(), 1 << 20);
        let directory = std::env::temp_dir().join(format!("bcnet-remarks-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let path = directory.join("game.pcapng");
        let ring = CaptureRing { path: path.clone(), file_size: 1 << 30, file_count: 1 };
        let mut watch = ProxyObserver::new(None, Some(Recorder::start(ring).expect("a capture")), false);
        let mut observer = Observer::new(LIMITS);
        let mut expected = BTreeMap::<u64, Vec<String>>::new();
        for (number, (meta, bytes)) in (1..).zip(&datagrams) {
            let route = (World::address(meta.from), World::address(meta.to));
            let mut messages = MessageBuffer::default();
            let content = messages.read(bytes, None);
            watch.observe(route, (bytes, &content), meta.now, Duration::from_micros(meta.now.as_micros()));
            observer.observe(number, meta.now, route.0, route.1, &content);
            while let Some(finding) = observer.poll_finding() {
                assert_ne!(finding.mark, NO_MARK);
                if finding.kind.is_fault() {
                    expected.entry(finding.mark).or_default().push(finding.kind.to_string());
                }
            }
        }
        // At this time all findings are final.
        watch.advance(Time::from_micros(1 << 40), Duration::ZERO);
        drop(watch);
        let mut reader = PcapNgReader::new(fs::File::open(&path).expect("a file")).expect("a capture");
        let (mut number, mut late) = (0, 0);
        while let Some(block) = reader.next_block() {
            let Block::EnhancedPacket(packet) = block.expect("whole") else { continue };
            number += 1;
            let mut remarks = expected.remove(&number).unwrap_or_default();
            late += remarks.iter().filter(|remark| remark.contains("no ACK was sent")).count();
            let comment = packet.options.iter().find_map(|option| match option {
                EnhancedPacketOption::Comment(text) => Some(text.to_string()),
                _ => None,
            });
            let mut recorded: Vec<String> =
                comment.iter().flat_map(|text| text.split("; ")).map(str::to_owned).collect();
            remarks.sort();
            recorded.sort();
            // Findings about the last datagrams are only known at the end.
            if number < 500 || !remarks.is_empty() {
                assert_eq!(recorded, remarks, "packet {number}");
            }
        }
        assert_eq!((number as usize, expected.len()), (datagrams.len(), 0));
        assert!(late > 20, "only {late} causes were found later");
        drop(reader);
        fs::remove_dir_all(&directory).expect("removed");
    }
}
