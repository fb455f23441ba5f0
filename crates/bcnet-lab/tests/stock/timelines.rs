//! Random timelines, through the engine and through the second model: the same dumps.

use bcnet_lab::Rng;
use bcnet_lab::stock::{Backoff, Mode, Options, Stock};
use bcnet_transport::Time;
use bcnet_transport::wire::{BootReason, Channel, Kind};

use super::bench::{PEER, ack, control, game, part, plain, quiet};
use super::model::{Growth, Key, Model, Shown};

/// What happens at some time.
#[derive(Debug, Clone, Copy)]
enum Act {
    Message(Key),
    Ack(Key),
    Send { len: usize, reliable: bool, urgent: bool, growth: Growth },
    Boot,
    Dump,
}

#[test]
fn both_models_give_the_same_dumps() {
    let (mut dumps, mut acks, mut waiting) = (0, 0, 0);
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let tick = [1_000, 3_000, 16_667, 50_000, 97_000][rng.size(5)];
        let timeline = timeline(&mut rng);
        let (engine, model) = (through_engine(&timeline, tick), through_model(&timeline, tick));
        for ((time, by_engine), (_, by_model)) in engine.iter().zip(&model) {
            assert_eq!(by_engine, by_model, "seed {seed}, tick {tick} us, at {time} us");
            dumps += 1;
            acks += by_model.0.len();
            waiting += by_model.1.len();
        }
        assert_eq!(engine.len(), model.len());
    }
    // The timelines do fill the queues.
    assert!(dumps >= 8_000 && acks > 4 * dumps && waiting > dumps, "{dumps} {acks} {waiting}");
}

/// A join that is never twice the same, then a fight, sometimes until messages are given up.
fn timeline(rng: &mut Rng) -> Vec<(u64, Act)> {
    let long = rng.chance(0.1);
    let end = if long { 400_000_000 } else { rng.between(6_000_000, 20_000_000) };
    // The entry must be there before anything is queued for it.
    let mut acts = vec![(0, Act::Message((true, 0, None)))];
    let (mut sent, mut number) = (0, 0);
    for _ in 0..rng.between(5, 60) {
        let key =
            if rng.chance(0.2) { (false, 900, Some(rng.size(40) as u8)) } else { (false, number, None) };
        number += u16::from(key.2.is_none());
        let first = rng.below(end);
        acts.push((first, Act::Message(key)));
        if rng.chance(0.3) {
            acts.push((first + rng.below(4_000_000), Act::Message(key)));
        }
    }
    let mut times: Vec<u64> = (0..rng.between(0, 30)).map(|_| rng.between(1_000, end)).collect();
    times.sort_unstable();
    for at in times {
        let len = [rng.size(60), rng.size(420), 832, rng.size(3_000)][rng.size(4)];
        let growth = [Growth::Saw, Growth::Saw, Growth::Same, Growth::Double][rng.size(4)];
        let reliable = rng.chance(0.5);
        acts.push((at, Act::Send { len, reliable, urgent: rng.chance(0.2), growth }));
        if reliable {
            acknowledge(rng, &mut acts, (at, end), sent, len);
            sent += 1;
        }
    }
    if rng.chance(0.2) {
        acts.push((end - 2_000_000, Act::Boot));
    }
    acts.extend((0..40).map(|_| (rng.below(end), Act::Dump)));
    acts.push((end, Act::Dump));
    acts.sort_by_key(|(at, _)| *at);
    acts
}

/// Some ACKs come soon, some late, some never, some are plain where they should not be.
fn acknowledge(rng: &mut Rng, acts: &mut Vec<(u64, Act)>, (at, end): (u64, u64), seq: u16, len: usize) {
    let parts = if len > 407 { 1 + (len - 405).div_ceil(406) } else { 0 };
    for index in 0..parts.max(1) {
        if rng.chance(0.8) {
            let part = (parts > 0 && rng.chance(0.9)).then_some(index as u8);
            let delay = if rng.chance(0.7) { rng.below(300_000) } else { rng.below(end) };
            acts.push((at + delay, Act::Ack((false, seq, part))));
        }
    }
}

/// Calls `act` for everything in turn and `frame` for the frames between.
fn play<T>(
    timeline: &[(u64, Act)],
    tick: u64,
    state: &mut T,
    mut frame: impl FnMut(&mut T, u64),
    mut act: impl FnMut(&mut T, u64, Act),
) {
    let mut next = 0;
    for (at, what) in timeline {
        // A dump sees the frame of its own time, everything else comes before it.
        while next < *at || (next == *at && matches!(what, Act::Dump)) {
            frame(state, next);
            next += tick;
        }
        act(state, *at, *what);
    }
}

fn through_engine(timeline: &[(u64, Act)], tick: u64) -> Vec<(u64, Shown)> {
    let mut dumps = Vec::new();
    let mut stock = Stock::host(plain(quiet()));
    let serve = |stock: &mut Stock, at| {
        stock.service(Time::from_micros(at));
        while stock.poll_transmit(&mut [0; 512]).is_some() {}
    };
    play(timeline, tick, &mut stock, serve, |stock, at, act| {
        let now = Time::from_micros(at);
        match act {
            Act::Message((true, seq, _)) => stock.inject(PEER, &control(0x05, seq, &[99, 0, 0, 0, 0]), now),
            Act::Message((false, seq, None)) => stock.inject(PEER, &game(seq, b"x"), now),
            Act::Message((false, seq, Some(index))) => stock.inject(PEER, &part(seq, index, 200, b"x"), now),
            Act::Ack((low, seq, None)) => stock.inject(PEER, &ack(seq, if low { 2 } else { 0 }), now),
            Act::Ack((_, seq, Some(index))) => stock.inject(PEER, &[ack(seq, 1), vec![index]].concat(), now),
            Act::Send { len, reliable, urgent, growth } => {
                let mode = match growth {
                    Growth::Same => Mode::Fixed,
                    Growth::Saw => Mode::Linear,
                    Growth::Double => Mode::Exponential,
                };
                let backoff = Backoff { mode, ..Backoff::default() };
                let options = Options { kind: Kind::DATA, reliable, urgent, aggregate: true, backoff };
                stock.send_with(PEER, &vec![7; len], options, now).expect("known");
            }
            Act::Boot => assert!(stock.boot(PEER, BootReason::KICKED, now)),
            Act::Dump => dumps.push((at, shown(stock))),
        }
    });
    dumps
}

fn shown(stock: &Stock) -> Shown {
    let Some(dump) = stock.dump(PEER) else { return Shown::default() };
    let low = |channel| channel == Channel::Control;
    let acks = dump.acks.iter().map(|ack| ((low(ack.channel), ack.seq, ack.part), ack.retx));
    let retx =
        dump.retx.iter().map(|retx| ((low(retx.channel), retx.seq, retx.part), retx.retx, retx.interval));
    (acks.collect(), retx.collect())
}

fn through_model(timeline: &[(u64, Act)], tick: u64) -> Vec<(u64, Shown)> {
    let mut dumps = Vec::new();
    let mut model = Model::default();
    // A disconnect of someone else is passed on, to the peer that told it too.
    let mut told = false;
    let frame = |model: &mut Model, at: u64| {
        model.frame((at as f64 / 1e6) as f32);
        if !told {
            told = true;
            model.queue(true, 5, true, true, Growth::Saw);
        }
    };
    play(timeline, tick, &mut model, frame, |model, at, act| match act {
        Act::Message(key) => model.message_arrives(key),
        Act::Ack(key) => model.ack_arrives(key),
        Act::Send { len, reliable, urgent, growth } => model.queue(false, len, reliable, urgent, growth),
        Act::Boot => {
            model.queue(true, 2, true, true, Growth::Saw);
            model.doomed = true;
        }
        Act::Dump => dumps.push((at, model.dump())),
    });
    dumps
}
