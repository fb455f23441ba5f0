//! Runs random timelines through the engine and through the reference model, and compares the dumps.

use bcnet_lab::Rng;
use bcnet_lab::stock::{Backoff, BackoffMode, SendOptions, StockEngine};
use bcnet_transport::Time;
use bcnet_transport::wire::{BootReason, Channel, Kind};

use super::harness::{PEER, ack, control, game, part, without_cipher, without_timers};
use super::reference_model::{DumpContents, ModelKey, ReferenceModel, WaitGrowth};

/// An event of a timeline.
#[derive(Debug, Clone, Copy)]
enum TimelineEvent {
    Message(ModelKey),
    Ack(ModelKey),
    Send { len: usize, reliable: bool, urgent: bool, growth: WaitGrowth },
    Boot,
    Dump,
}

#[test]
fn both_models_give_the_same_dumps() {
    let (mut dumps, mut acks, mut waiting) = (0, 0, 0);
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let tick = [1_000, 3_000, 16_667, 50_000, 97_000][rng.index(5)];
        let timeline = draw_timeline(&mut rng);
        let (engine, model) = (dumps_of_engine(&timeline, tick), dumps_of_model(&timeline, tick));
        for ((time, by_engine), (_, by_model)) in engine.iter().zip(&model) {
            assert_eq!(by_engine, by_model, "seed {seed}, tick {tick} us, at {time} us");
            dumps += 1;
            acks += by_model.0.len();
            waiting += by_model.1.len();
        }
        assert_eq!(engine.len(), model.len());
    }
    // Checks that the timelines fill the queues.
    assert!(dumps >= 8_000 && acks > 4 * dumps && waiting > dumps, "{dumps} {acks} {waiting}");
}

/// Draws a random join and a battle, sometimes long enough that messages reach the age limit.
fn draw_timeline(rng: &mut Rng) -> Vec<(u64, TimelineEvent)> {
    let long = rng.chance(0.1);
    let end = if long { 400_000_000 } else { rng.between(6_000_000, 20_000_000) };
    // The entry must exist before a message is queued for it.
    let mut acts = vec![(0, TimelineEvent::Message((true, 0, None)))];
    let (mut sent, mut number) = (0, 0);
    for _ in 0..rng.between(5, 60) {
        let key =
            if rng.chance(0.2) { (false, 900, Some(rng.index(40) as u8)) } else { (false, number, None) };
        number += u16::from(key.2.is_none());
        let first = rng.below(end);
        acts.push((first, TimelineEvent::Message(key)));
        if rng.chance(0.3) {
            acts.push((first + rng.below(4_000_000), TimelineEvent::Message(key)));
        }
    }
    let mut times: Vec<u64> = (0..rng.between(0, 30)).map(|_| rng.between(1_000, end)).collect();
    times.sort_unstable();
    for at in times {
        let len = [rng.index(60), rng.index(420), 832, rng.index(3_000)][rng.index(4)];
        let growth = [WaitGrowth::Sawtooth, WaitGrowth::Sawtooth, WaitGrowth::Fixed, WaitGrowth::Doubling]
            [rng.index(4)];
        let reliable = rng.chance(0.5);
        acts.push((at, TimelineEvent::Send { len, reliable, urgent: rng.chance(0.2), growth }));
        if reliable {
            add_acks(rng, &mut acts, (at, end), sent, len);
            sent += 1;
        }
    }
    if rng.chance(0.2) {
        acts.push((end - 2_000_000, TimelineEvent::Boot));
    }
    acts.extend((0..40).map(|_| (rng.below(end), TimelineEvent::Dump)));
    acts.push((end, TimelineEvent::Dump));
    acts.sort_by_key(|(at, _)| *at);
    acts
}

/// Adds ACKs: some early, some late, some missing, and some plain ACKs for fragments.
fn add_acks(
    rng: &mut Rng,
    acts: &mut Vec<(u64, TimelineEvent)>,
    (at, end): (u64, u64),
    seq: u16,
    len: usize,
) {
    let parts = if len > 407 { 1 + (len - 405).div_ceil(406) } else { 0 };
    for index in 0..parts.max(1) {
        if rng.chance(0.8) {
            let part = (parts > 0 && rng.chance(0.9)).then_some(index as u8);
            let delay = if rng.chance(0.7) { rng.below(300_000) } else { rng.below(end) };
            acts.push((at + delay, TimelineEvent::Ack((false, seq, part))));
        }
    }
}

/// Calls `act` for each event in order, and `frame` for the frames between them.
fn replay_timeline<T>(
    timeline: &[(u64, TimelineEvent)],
    tick: u64,
    state: &mut T,
    mut frame: impl FnMut(&mut T, u64),
    mut act: impl FnMut(&mut T, u64, TimelineEvent),
) {
    let mut next = 0;
    for (at, what) in timeline {
        // A dump comes after the frame of its own time, every other event before it.
        while next < *at || (next == *at && matches!(what, TimelineEvent::Dump)) {
            frame(state, next);
            next += tick;
        }
        act(state, *at, *what);
    }
}

fn dumps_of_engine(timeline: &[(u64, TimelineEvent)], tick: u64) -> Vec<(u64, DumpContents)> {
    let mut dumps = Vec::new();
    let mut stock = StockEngine::host(without_cipher(without_timers()));
    let serve = |stock: &mut StockEngine, at| {
        stock.run_frame(Time::from_micros(at));
        while stock.poll_transmit(&mut [0; 512]).is_some() {}
    };
    replay_timeline(timeline, tick, &mut stock, serve, |stock, at, act| {
        let now = Time::from_micros(at);
        match act {
            TimelineEvent::Message((true, seq, _)) => {
                stock.inject(PEER, &control(0x05, seq, &[99, 0, 0, 0, 0]), now)
            }
            TimelineEvent::Message((false, seq, None)) => stock.inject(PEER, &game(seq, b"x"), now),
            TimelineEvent::Message((false, seq, Some(index))) => {
                stock.inject(PEER, &part(seq, index, 200, b"x"), now)
            }
            TimelineEvent::Ack((low, seq, None)) => {
                stock.inject(PEER, &ack(seq, if low { 2 } else { 0 }), now)
            }
            TimelineEvent::Ack((_, seq, Some(index))) => {
                stock.inject(PEER, &[ack(seq, 1), vec![index]].concat(), now)
            }
            TimelineEvent::Send { len, reliable, urgent, growth } => {
                let mode = match growth {
                    WaitGrowth::Fixed => BackoffMode::Fixed,
                    WaitGrowth::Sawtooth => BackoffMode::Linear,
                    WaitGrowth::Doubling => BackoffMode::Exponential,
                };
                let backoff = Backoff { mode, ..Backoff::default() };
                let options = SendOptions { kind: Kind::DATA, reliable, urgent, aggregate: true, backoff };
                stock.send_with_options(PEER, &vec![7; len], options, now).expect("known");
            }
            TimelineEvent::Boot => assert!(stock.boot(PEER, BootReason::KICKED, now)),
            TimelineEvent::Dump => dumps.push((at, dump_contents(stock))),
        }
    });
    dumps
}

fn dump_contents(stock: &StockEngine) -> DumpContents {
    let Some(dump) = stock.dump(PEER) else { return DumpContents::default() };
    let low = |channel| channel == Channel::Control;
    let acks = dump.acks.iter().map(|ack| ((low(ack.channel), ack.seq, ack.part), ack.retx));
    let retx =
        dump.retx.iter().map(|retx| ((low(retx.channel), retx.seq, retx.part), retx.retx, retx.interval));
    (acks.collect(), retx.collect())
}

fn dumps_of_model(timeline: &[(u64, TimelineEvent)], tick: u64) -> Vec<(u64, DumpContents)> {
    let mut dumps = Vec::new();
    let mut model = ReferenceModel::default();
    // The host relays a disconnect to all peers, also to its sender.
    let mut relayed = false;
    let frame = |model: &mut ReferenceModel, at: u64| {
        model.frame((at as f64 / 1e6) as f32);
        if !relayed {
            relayed = true;
            model.queue(true, 5, true, true, WaitGrowth::Sawtooth);
        }
    };
    replay_timeline(timeline, tick, &mut model, frame, |model, at, act| match act {
        TimelineEvent::Message(key) => model.message_arrives(key),
        TimelineEvent::Ack(key) => model.ack_arrives(key),
        TimelineEvent::Send { len, reliable, urgent, growth } => {
            model.queue(false, len, reliable, urgent, growth)
        }
        TimelineEvent::Boot => {
            model.queue(true, 2, true, true, WaitGrowth::Sawtooth);
            model.deleted = true;
        }
        TimelineEvent::Dump => dumps.push((at, model.dump())),
    });
    dumps
}
