//! Frames before the next due time have no effect: skipping them gives the same traffic, byte for byte.

use bcnet_lab::Rng;
use bcnet_lab::stock::{Params, StockCounters, StockEngine};
use bcnet_transport::wire::PeerId;
use bcnet_transport::{DeliveryMode, Event, Time};

use super::harness::{PEER, address, control, datagram, millis, request, without_cipher, without_timers};

/// Everything that is visible from outside.
#[derive(Debug, PartialEq)]
struct RunRecord {
    sent: Vec<(Time, usize, Vec<u8>)>,
    events: Vec<(Time, usize, Event, Vec<u8>)>,
    counters: [StockCounters; 2],
    dumps: String,
}

#[test]
fn skipping_empty_frames_changes_nothing() {
    let mut left_out = (0, 0);
    for seed in 0..40 {
        let (every, frames) = run(seed, false);
        let (some, fewer) = run(seed, true);
        assert_eq!(every, some, "seed {seed}");
        left_out = (left_out.0 + frames, left_out.1 + fewer);
    }
    assert!(left_out.1 * 10 < left_out.0, "{} of {} frames were run", left_out.1, left_out.0);
}

/// Runs a host and a client with loss, delay, bursts of traffic, long silences and departures.
///
/// Returns the record and the number of frames that were run.
fn run(seed: u64, skip: bool) -> (RunRecord, u64) {
    let mut rng = Rng::new(seed);
    let params = Params {
        cipher: false,
        address: *address(1).ip(),
        granularity: millis([0, 0, 1, 10][rng.index(4)]),
        ..Params::default()
    };
    // At large clock readings a frame is shorter than the precision of a 32-bit float.
    let start = [0, 0, 3_000_000_000, 80_000_000_000][rng.index(4)];
    let end = start + 150_000_000;
    let ticks = [3_000, 16_667];
    let own = *address(2).ip();
    let client = StockEngine::connect(params.clone(), address(1), own, 7, &[], Time::from_micros(start));
    let mut nodes = [StockEngine::host(params), client];
    let mut flying: Vec<(u64, usize, Vec<u8>)> = Vec::new();
    let mut plan = draw_actions(&mut rng, start, end);
    let mut record =
        RunRecord { sent: vec![], events: vec![], counters: Default::default(), dumps: String::new() };
    let mut frames = 0;
    let mut clock = start;
    while clock < end {
        let now = Time::from_micros(clock);
        while plan.last().is_some_and(|(at, ..)| *at <= clock) {
            let (_, node, act) = plan.pop().expect("the plan has another action");
            perform(&mut nodes[node], node, act, now);
        }
        flying.retain(|(at, to, bytes)| {
            let arrives = *at <= clock;
            if arrives {
                nodes[*to].handle_datagram(address(if *to == 0 { 2 } else { 1 }), bytes, now);
            }
            !arrives
        });
        for (node, stock) in nodes.iter_mut().enumerate() {
            let is_tick = clock.is_multiple_of(ticks[node]);
            if is_tick && (!skip || stock.next_due().is_some_and(|due| due <= now)) {
                frames += 1;
                stock.run_frame(now);
                collect(stock, node, now, &mut record, &mut |bytes| {
                    if !rng.chance(0.1) {
                        flying.push((clock + rng.between(1_000, 60_000), 1 - node, bytes));
                    }
                });
            }
        }
        let tick = |tick: &u64| (clock + 1).next_multiple_of(*tick);
        clock = ticks.iter().map(tick).min().expect("two");
    }
    record.counters = nodes.each_ref().map(StockEngine::stock_counters);
    // Dumps at a fixed time: ages would otherwise depend on the last frame.
    let dump = |stock: &StockEngine, peer| {
        let dump = stock.dump_at(peer, Time::from_micros(end));
        dump.map(|dump| format!("{:?} {:?}", dump.acks, dump.retx))
    };
    record.dumps = format!("{:?} {:?}", dump(&nodes[0], PEER), dump(&nodes[1], PeerId::HOST));
    (record, frames)
}

#[derive(Debug, Clone, Copy)]
enum NodeAction {
    Send(usize, DeliveryMode),
    Name,
    Leave,
}

/// Draws the actions of the nodes, the last one first.
fn draw_actions(rng: &mut Rng, start: u64, end: u64) -> Vec<(u64, usize, NodeAction)> {
    let mut plan = vec![(start + 2_000_000, 1, NodeAction::Name)];
    for _ in 0..rng.between(0, 40) {
        let quality = [DeliveryMode::Reliable, DeliveryMode::Urgent, DeliveryMode::Unreliable][rng.index(3)];
        let at = rng.between(start + 3_000_000, end);
        plan.push((at, rng.index(2), NodeAction::Send(rng.index(900), quality)));
    }
    if rng.chance(0.3) {
        plan.push((rng.between(start + 3_000_000, end), 1, NodeAction::Leave));
    }
    plan.sort_by_key(|(at, ..)| std::cmp::Reverse(*at));
    plan
}

fn perform(stock: &mut StockEngine, node: usize, act: NodeAction, now: Time) {
    let other = if node == 0 { PEER } else { PeerId::HOST };
    match act {
        NodeAction::Send(len, quality) => drop(stock.send(other, &vec![7; len], quality, now)),
        NodeAction::Name => stock.identify(&[0x41, 0], now),
        NodeAction::Leave => stock.leave(now),
    }
}

fn collect(
    stock: &mut StockEngine,
    node: usize,
    now: Time,
    record: &mut RunRecord,
    launch: &mut impl FnMut(Vec<u8>),
) {
    let (mut buffer, mut payload) = ([0; 512], Vec::new());
    while let Some(transmit) = stock.poll_transmit(&mut buffer) {
        let bytes = buffer[..transmit.len].to_vec();
        record.sent.push((now, node, bytes.clone()));
        launch(bytes);
    }
    while let Some(event) = stock.poll_event(&mut payload) {
        record.events.push((now, node, event, payload.clone()));
    }
}

/// Runs only the frames that are due, up to `end` seconds. Returns the time of the last one.
fn run_due(stock: &mut StockEngine, end: u64) -> Time {
    let mut last = Time::ZERO;
    while let Some(due) = stock.next_due().filter(|due| due.as_micros() < end * 1_000_000) {
        last = Time::from_micros(due.as_micros().next_multiple_of(3000));
        stock.run_frame(last);
        while stock.poll_transmit(&mut [0; 512]).is_some() {}
    }
    last
}

/// A message is dropped for its age between two retransmissions. Then nothing is left to do.
#[test]
fn frame_that_drops_an_expired_message_is_due() {
    let mut stock = StockEngine::host(without_timers());
    stock.inject(PEER, &[0x02], Time::ZERO);
    stock.run_frame(Time::ZERO);
    stock.send(PEER, b"x", DeliveryMode::Reliable, Time::ZERO).expect("known");
    let last = run_due(&mut stock, 1000);
    assert_eq!((stock.stock_counters().given_up, stock.is_idle()), (1, true));
    assert!((360_000_000..360_010_000).contains(&last.as_micros()), "{last}");
}

/// Messages of a deleted peer are dropped in the frame after its timeout, not when something else is due.
#[test]
fn the_frame_after_a_timeout_is_due() {
    let locked =
        Params { password: Some(vec![0x53, 0]), silence: Some(45.0), ..without_cipher(without_timers()) };
    let mut stock = StockEngine::host(locked);
    let request_datagram = datagram(0xFF, &[request(2, 7), control(0x05, 5, &[2, 10, 0, 0, 2])]);
    stock.handle_datagram(address(2), &request_datagram, Time::ZERO);
    let last = run_due(&mut stock, 100);
    assert_eq!((stock.stock_counters().dropped, stock.is_idle()), (1, true));
    assert!((45_000_000..45_010_000).contains(&last.as_micros()), "{last}");
}

/// A day of an idle pair takes few frames.
#[test]
fn idle_day_runs_few_frames() {
    let params = Params { silence: None, ..Params::default() };
    let mut stock = StockEngine::host(params);
    stock.inject(PEER, &[0x02], Time::ZERO);
    let (mut frames, mut now) = (0_u64, Time::ZERO);
    while now < Time::from_micros(86_400_000_000) {
        stock.run_frame(now);
        while stock.poll_transmit(&mut [0; 512]).is_some() {}
        frames += 1;
        let due = stock.next_due().expect("a keepalive");
        now = Time::from_micros(due.as_micros().next_multiple_of(3000));
    }
    assert!(stock.stock_counters().datagrams > 17_000 && frames < 500_000, "{frames} frames");
}
