//! Wake-ups, panics and replays of game policies (S-90), in virtual time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use bcnet_lab::{Faults, Rng};
use bcnet_session::game::{Message, ObjectId, StateUpdate};
use bcnet_session::policy::{
    CopyBuffer, CopyVerdict, GamePolicy, PlayerMessage, PlayerView, PolicyHost, Recipients, Verdict,
};
use bcnet_session::{Config, Score};
use bcnet_transport::Time;

use crate::play::{ship, world_with_players};
use crate::policy::{OnMessage, Scripted, chat, message_bytes, scripted, world_with_policy};
use crate::world::{TICK, TestWorld};

const SECOND: Duration = Duration::from_secs(1);
/// The tick of the policies in these tests.
const PERIOD: Duration = Duration::from_millis(33);

/// S-90: with a policy that passes everything, each byte is the same as without one.
#[test]
fn passing_policy_changes_no_byte() {
    let play = |policy: Option<Scripted>| {
        let mut world = TestWorld::new(Config::default());
        if let Some(policy) = policy {
            world.session.set_policy(Box::new(policy), Time::ZERO);
        }
        run_random_game(&mut world, 5);
        world.sent
    };
    let without = play(None);
    let per_receiver = Scripted { message: |_, _| Verdict::PerReceiver, ..Scripted::default() };
    assert!(without.len() > 1000);
    assert!(play(Some(Scripted::default())) == without);
    assert!(play(Some(per_receiver)) == without, "copies that pass are those of the relay");
}

/// Plays a game of four players with random messages.
fn run_random_game(world: &mut TestWorld, seed: u64) {
    let mut rng = Rng::new(seed);
    let players: Vec<usize> = (0..4).map(|n| world.connect(&format!("Player {n}"), "")).collect();
    world.run_until(60 * SECOND, |world| world.session.players_in_game() == 4);
    for step in 0..300_u16 {
        let at = players[usize::try_from(rng.below(4)).expect("a small number")];
        let slot =
            world.session.players().find(|player| player.id == world.id(at)).and_then(|player| player.slot);
        let slot = slot.expect("a slot");
        let object = ObjectId::new(slot, 0);
        match rng.below(5) {
            0 => world.send(at, &ship(slot, world.id(at).0, object.0)),
            1 => {
                let line = chat(world.id(at).0, format!("line {step}").as_bytes());
                world.send(at, &line);
            }
            2 => {
                let fire = [
                    &[7, 0x28, 0x81, 0, 0, 0xD8, 0, 0x80, 0, 0, 0, 0, 0][..],
                    &object.0.to_le_bytes(),
                    &[0; 8],
                ];
                world.send(at, &fire.concat());
            }
            3 => world.send(at, &[0xCD, slot]),
            _ => {
                let update = StateUpdate {
                    object,
                    time: f32::from(step),
                    speed: Some(Default::default()),
                    ..Default::default()
                };
                world.send_unreliable(at, &message_bytes(&Message::StateUpdate(update)));
            }
        }
        world.run(Duration::from_millis(5 * rng.below(10)));
    }
    world.leave(0);
    world.run(2 * SECOND);
}

/// S-90: a fixed tick keeps its times, although the caller is late, and a tick that is due precedes later messages.
#[test]
fn wake_ups_keep_a_fixed_tick() {
    let mut world = world_with_players(Config::default(), 1);
    let start = world.now;
    #[derive(Debug)]
    struct Ticking(Vec<(Time, Time)>, Vec<(usize, Time)>);
    impl GamePolicy for Ticking {
        fn on_start(&mut self, host: &mut PolicyHost<'_>) {
            host.wake_at(host.now() + PERIOD);
        }
        fn on_message(&mut self, _: &PlayerMessage<'_>, host: &mut PolicyHost<'_>) -> Verdict {
            self.1.push((self.0.len(), host.now()));
            Verdict::Pass
        }
        fn on_wake(&mut self, due: Time, host: &mut PolicyHost<'_>) {
            self.0.push((due, host.now()));
            host.wake_at(due + PERIOD);
        }
    }
    world.session.set_policy(Box::new(Ticking(Vec::new(), Vec::new())), start);
    assert!(world.session.next_timeout().is_some_and(|due| due <= start + PERIOD));
    for _ in 0..20 {
        world.send(0, &[0xCD]);
        world.run(SECOND / 10);
    }
    let ticking: &Ticking = world.session.policy().expect("the policy");
    for (index, (due, now)) in ticking.0.iter().enumerate() {
        let index = u32::try_from(index).expect("a small number");
        assert_eq!(*due, start + PERIOD * (index + 1));
        assert!(*now >= *due && *now < *due + TICK, "{due:?} ran at {now:?}");
    }
    assert_eq!(ticking.0.len(), 60);
    for (ticks, at) in &ticking.1 {
        let due = at.since(start).as_millis() / PERIOD.as_millis();
        assert_eq!(*ticks, usize::try_from(due).expect("a small number"), "a message at {at:?}");
    }
    // The caller was away for a second: the ticks are made up for.
    let later = world.now + SECOND;
    world.session.handle_timeout(later);
    let ticking: &Ticking = world.session.policy().expect("the policy");
    assert!((90..=91).contains(&ticking.0.len()), "{}", ticking.0.len());
    // After an hour, 64 ticks run at once, and the session asks to be called a millisecond later.
    let count = ticking.0.len();
    let later = later + 3600 * SECOND;
    world.session.handle_timeout(later);
    let ticking: &Ticking = world.session.policy().expect("the policy");
    assert_eq!(ticking.0.len(), count + 64);
}

/// S-90: a policy that always asks for a time in the past is called at most once per millisecond.
#[test]
fn wake_up_in_the_past_does_not_loop() {
    let mut world =
        world_with_policy(1, Scripted { wake: |host| host.wake_at(Time::ZERO), ..Scripted::default() });
    let start = world.now;
    let mut calls = 0;
    while world.now < start + Duration::from_millis(20) {
        world.session.handle_timeout(world.now);
        world.now = world.now + Duration::from_micros(100);
        calls += 1;
    }
    assert!(
        calls >= 200 && (19..=21).contains(&scripted(&world).wakes.len()),
        "{}",
        scripted(&world).wakes.len()
    );
}

/// S-90: a policy that panics is gone; the session keeps its players and can be shut down.
#[test]
fn session_survives_a_panic_of_the_policy() {
    let message: OnMessage = |message, _| match message.message {
        Message::Unknown { .. } => panic!("a bug of the policy"),
        _ => Verdict::Pass,
    };
    let mut world = world_with_policy(2, Scripted { message, ..Scripted::default() });
    world.send(0, &[0xCD]);
    assert!(catch_unwind(AssertUnwindSafe(|| world.run(SECOND))).is_err());
    assert!(world.session.policy::<Scripted>().is_none());
    world.run(SECOND);
    assert_eq!(world.session.players_in_game(), 2);
    world.session.shutdown(world.now);
    world.run(5 * SECOND);
    assert!(world.session.is_closed());
}

/// S-90: the same input gives the same output, byte for byte, also on a network with faults.
#[test]
fn replay_with_a_policy_is_identical() {
    /// A policy that acts on everything, with random numbers from its seed.
    #[derive(Debug)]
    struct Random(Rng);
    impl GamePolicy for Random {
        fn on_start(&mut self, host: &mut PolicyHost<'_>) {
            host.wake_at(host.now() + PERIOD);
        }
        fn on_message(&mut self, message: &PlayerMessage<'_>, host: &mut PolicyHost<'_>) -> Verdict {
            match self.0.below(5) {
                0 => Verdict::Drop,
                1 => Verdict::PerReceiver,
                2 => host.replace(message.message),
                _ => Verdict::Pass,
            }
        }
        fn on_copy(
            &mut self,
            message: &PlayerMessage<'_>,
            _: PlayerView<'_>,
            copy: &mut CopyBuffer<'_>,
        ) -> CopyVerdict {
            match (message.message, self.0.below(3)) {
                (_, 0) => CopyVerdict::Drop,
                (Message::StateUpdate(update), 1) => copy.replace(&Message::StateUpdate(StateUpdate {
                    time: update.time + 1.0,
                    ..update.clone()
                })),
                _ => CopyVerdict::Pass,
            }
        }
        fn on_wake(&mut self, due: Time, host: &mut PolicyHost<'_>) {
            if let Some(player) = host.players().next().filter(|_| self.0.below(10) == 0) {
                host.say(Recipients::One(player.id()), &format!("{:?}", host.game_time()));
                let kills = i32::try_from(self.0.below(9)).expect("a small number");
                host.set_score(player.id(), Score { kills, ..Score::default() });
            }
            host.wake_at(due + PERIOD);
        }
    }
    let play = |seed: u64| {
        let faults = Faults {
            loss: 0.1,
            delay: Duration::from_millis(30),
            jitter: Duration::from_millis(20),
            ..Faults::default()
        };
        let mut world = TestWorld::with_faults(Config::default(), faults, 9);
        world.session.set_policy(Box::new(Random(Rng::new(seed))), Time::ZERO);
        run_random_game(&mut world, 3);
        world.sent
    };
    let first = play(1);
    assert!(first.len() > 800, "{}", first.len());
    assert!(first == play(1));
    assert!(first != play(2), "the seed has an effect");
}
