//! Frames before the next due time change nothing: leaving them out gives the same traffic, to the byte.

use bcnet_lab::Rng;
use bcnet_lab::stock::{Params, Stock, Tally};
use bcnet_transport::wire::PeerId;
use bcnet_transport::{Event, Quality, Time};

use super::bench::{PEER, address, control, datagram, millis, plain, quiet, request};

/// All that can be seen from outside.
#[derive(Debug, PartialEq)]
struct Record {
    sent: Vec<(Time, usize, Vec<u8>)>,
    heard: Vec<(Time, usize, Event, Vec<u8>)>,
    tallies: [Tally; 2],
    dumps: String,
}

#[test]
fn leaving_out_empty_frames_changes_nothing() {
    let mut left_out = (0, 0);
    for seed in 0..40 {
        let (every, frames) = run(seed, false);
        let (some, fewer) = run(seed, true);
        assert_eq!(every, some, "seed {seed}");
        left_out = (left_out.0 + frames, left_out.1 + fewer);
    }
    assert!(left_out.1 * 10 < left_out.0, "{} of {} frames were run", left_out.1, left_out.0);
}

/// A host and a client with loss, delay, chatter, long silences and now and then a leaver; what was seen and how many
/// frames were run.
fn run(seed: u64, skip: bool) -> (Record, u64) {
    let mut rng = Rng::new(seed);
    let params = Params {
        cipher: false,
        address: *address(1).ip(),
        granularity: millis([0, 0, 1, 10][rng.size(4)]),
        ..Params::default()
    };
    // Late on the clock a frame is less than what a float can tell apart.
    let start = [0, 0, 3_000_000_000, 80_000_000_000][rng.size(4)];
    let end = start + 150_000_000;
    let ticks = [3_000, 16_667];
    let own = *address(2).ip();
    let client = Stock::connect(params.clone(), address(1), own, 7, &[], Time::from_micros(start));
    let mut nodes = [Stock::host(params), client];
    let mut flying: Vec<(u64, usize, Vec<u8>)> = Vec::new();
    let mut plan = plan(&mut rng, start, end);
    let mut record =
        Record { sent: vec![], heard: vec![], tallies: Default::default(), dumps: String::new() };
    let mut frames = 0;
    let mut clock = start;
    while clock < end {
        let now = Time::from_micros(clock);
        while plan.last().is_some_and(|(at, ..)| *at <= clock) {
            let (_, node, act) = plan.pop().expect("there is one");
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
                stock.service(now);
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
    record.tallies = nodes.each_ref().map(Stock::tally);
    // At the same time, whichever frame was the last: ages count from it.
    let dump = |stock: &Stock, peer| {
        let dump = stock.dump_at(peer, Time::from_micros(end));
        dump.map(|dump| format!("{:?} {:?}", dump.acks, dump.retx))
    };
    record.dumps = format!("{:?} {:?}", dump(&nodes[0], PEER), dump(&nodes[1], PeerId::HOST));
    (record, frames)
}

#[derive(Debug, Clone, Copy)]
enum Act {
    Send(usize, Quality),
    Name,
    Leave,
}

/// What the nodes do, the last first.
fn plan(rng: &mut Rng, start: u64, end: u64) -> Vec<(u64, usize, Act)> {
    let mut plan = vec![(start + 2_000_000, 1, Act::Name)];
    for _ in 0..rng.between(0, 40) {
        let quality = [Quality::Reliable, Quality::Urgent, Quality::Unreliable][rng.size(3)];
        let at = rng.between(start + 3_000_000, end);
        plan.push((at, rng.size(2), Act::Send(rng.size(900), quality)));
    }
    if rng.chance(0.3) {
        plan.push((rng.between(start + 3_000_000, end), 1, Act::Leave));
    }
    plan.sort_by_key(|(at, ..)| std::cmp::Reverse(*at));
    plan
}

fn perform(stock: &mut Stock, node: usize, act: Act, now: Time) {
    let other = if node == 0 { PEER } else { PeerId::HOST };
    match act {
        Act::Send(len, quality) => drop(stock.send(other, &vec![7; len], quality, now)),
        Act::Name => stock.identify(&[0x41, 0], now),
        Act::Leave => stock.leave(now),
    }
}

fn collect(stock: &mut Stock, node: usize, now: Time, record: &mut Record, launch: &mut impl FnMut(Vec<u8>)) {
    let (mut buffer, mut payload) = ([0; 512], Vec::new());
    while let Some(transmit) = stock.poll_transmit(&mut buffer) {
        let bytes = buffer[..transmit.len].to_vec();
        record.sent.push((now, node, bytes.clone()));
        launch(bytes);
    }
    while let Some(event) = stock.poll_event(&mut payload) {
        record.heard.push((now, node, event, payload.clone()));
    }
}

/// Runs only the frames that are due, up to `end` seconds; tells when the last one was.
fn run_due(stock: &mut Stock, end: u64) -> Time {
    let mut last = Time::ZERO;
    while let Some(due) = stock.next_due().filter(|due| due.as_micros() < end * 1_000_000) {
        last = Time::from_micros(due.as_micros().next_multiple_of(3000));
        stock.service(last);
        while stock.poll_transmit(&mut [0; 512]).is_some() {}
    }
    last
}

/// It is given up between two of its retransmissions, and then nothing is left to do.
#[test]
fn the_frame_that_gives_a_message_up_is_due() {
    let mut stock = Stock::host(quiet());
    stock.inject(PEER, &[0x02], Time::ZERO);
    stock.service(Time::ZERO);
    stock.send(PEER, b"x", Quality::Reliable, Time::ZERO).expect("known");
    let last = run_due(&mut stock, 1000);
    assert_eq!((stock.tally().given_up, stock.idle()), (1, true));
    assert!((360_000_000..360_010_000).contains(&last.as_micros()), "{last}");
}

/// What a stranger left in the queue is thrown away in the frame after the stranger, not whenever something else is due.
#[test]
fn the_frame_after_a_timeout_is_due() {
    let locked = Params { password: Some(vec![0x53, 0]), silence: Some(45.0), ..plain(quiet()) };
    let mut stock = Stock::host(locked);
    let asked = datagram(0xFF, &[request(2, 7), control(0x05, 5, &[2, 10, 0, 0, 2])]);
    stock.handle_datagram(address(2), &asked, Time::ZERO);
    let last = run_due(&mut stock, 100);
    assert_eq!((stock.tally().dropped, stock.idle()), (1, true));
    assert!((45_000_000..45_010_000).contains(&last.as_micros()), "{last}");
}

/// A day of an idle pair takes few frames.
#[test]
fn an_idle_day_is_cheap() {
    let params = Params { silence: None, ..Params::default() };
    let mut stock = Stock::host(params);
    stock.inject(PEER, &[0x02], Time::ZERO);
    let (mut frames, mut now) = (0_u64, Time::ZERO);
    while now < Time::from_micros(86_400_000_000) {
        stock.service(now);
        while stock.poll_transmit(&mut [0; 512]).is_some() {}
        frames += 1;
        let due = stock.next_due().expect("a keepalive");
        now = Time::from_micros(due.as_micros().next_multiple_of(3000));
    }
    assert!(stock.tally().datagrams > 17_000 && frames < 500_000, "{frames} frames");
}
