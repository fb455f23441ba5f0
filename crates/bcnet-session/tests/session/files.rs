//! The file check: its rounds, its manifests, and refusals.

use std::time::Duration;

use bcnet_session::game::Opcode;
use bcnet_session::{Anomaly, Checksums, Config, Event, Manifest};
use bcnet_transport::wire::{BootReason, Datagram, PeerId};
use bcnet_transport::{LeaveReason, Time};

use crate::world::{TestWorld, file_check_reply, ships_reply};

const SECOND: Duration = Duration::from_secs(1);

/// S-22, S-26
#[test]
fn unanswered_file_checks_end_with_the_handshake_timeout() {
    let mut world = TestWorld::new(Config::default());
    let kirk = world.connect("Kirk", "");
    world.clients[kirk].answers_file_check = false;
    world.run(70 * SECOND);
    let requests: Vec<(Time, u8)> =
        world.clients[kirk].received.iter().map(|(at, payload)| (*at, payload[1])).collect();
    let rounds: Vec<u8> = requests.iter().map(|(_, round)| *round).collect();
    assert_eq!(rounds, [0, 1, 2]);
    let pauses = requests.windows(2).map(|pair| pair[1].0.since(pair[0].0).as_millis());
    assert!(
        pauses.clone().all(|pause| (19_950..20_100).contains(&pause)),
        "{:?}",
        pauses.collect::<Vec<_>>()
    );
    let id = PeerId(2);
    assert_eq!(world.clients[kirk].disconnects, [(id, LeaveReason::Booted(BootReason::TIMED_OUT))]);
    let anomalies = world.session.counters().anomalies;
    assert_eq!((anomalies.count(Anomaly::NoReply), anomalies.total()), (2, 2));
    assert_eq!(world.session.players().count(), 0);
}

fn learned_manifest() -> Manifest {
    let mut world = TestWorld::new(Config { learn_manifests: true, ..Config::default() });
    world.join("Good");
    let learned = world.events.into_iter().find_map(|event| match event {
        Event::ManifestLearned { manifest, .. } => Some(*manifest),
        _ => None,
    });
    learned.expect("a manifest")
}

/// S-23
#[test]
fn learned_manifest_roundtrips_through_text() {
    let manifest = learned_manifest();
    assert!(manifest.is_complete());
    assert_eq!(manifest.name, "Good");
    let text = manifest.to_string();
    assert!(text.contains("file 373EB677 F8A0A768 # App.pyc\n"), "{text}");
    assert!(text.contains("# Episode/Mission1/Mission1.pyc\n"), "{text}");
    assert_eq!(Manifest::parse(&text), Ok(manifest));
    for (text, error) in [
        ("", "line 1: the first line must be `bcnet-manifest 1`"),
        ("bcnet-manifest 1\nround 5", "line 2: `round` must be a number from 0 to 4"),
        ("bcnet-manifest 1\n# x\ndirectory 1", "line 3: expected `round` before this line"),
        (
            "bcnet-manifest 1\nround 1\nfile 1 2",
            "line 3: expected `file PATH CONTENT` with hashes of eight hex digits",
        ),
        (
            "bcnet-manifest 1\nround 1\ncolour red",
            "line 3: expected `name`, `round`, `version`, `directory` or `file`",
        ),
    ] {
        assert_eq!(Manifest::parse(text).expect_err(text).to_string(), error);
    }
}

/// S-23, S-24
#[test]
fn strict_check_names_the_mismatching_file() {
    let other = Manifest::parse("bcnet-manifest 1\nname other\nround 0\n").expect("well formed");
    let checksums = Checksums::Strict(vec![other, learned_manifest()]);
    let mut world = TestWorld::new(Config { checksums, ..Config::default() });
    world.join("Same");
    let mut changed = ships_reply(51, 0x3EB2_3EBA);
    changed[12] ^= 1;
    for (files, entry) in [
        (changed, "round 2: scripts/ships/Akira.pyc: other content"),
        (ships_reply(50, 0x3EB2_3EBA), "round 2: scripts/ships/3EB23EEC: missing"),
        (ships_reply(52, 0x3EB2_3EBA), "round 2: scripts/ships/3EB23EED: not in the manifest"),
    ] {
        let client = world.connect("Modder", "");
        world.clients[client].ships_reply = files;
        world.run(2 * SECOND);
        let mismatch = world.events.iter().rev().find_map(|event| match event {
            Event::ChecksumMismatch { mismatch, .. } => Some(mismatch.to_string()),
            _ => None,
        });
        assert_eq!(mismatch.as_deref(), Some(entry));
        let id = world.id(client);
        assert_eq!(world.clients[client].disconnects, [(id, LeaveReason::Booted(BootReason::KICKED))]);
        let last = world.take_received(client).pop().expect("a refusal");
        assert_eq!((last[0], last[1] as usize), (0x22, last.len() - 3));
        let (file, advice) =
            std::str::from_utf8(&last[3..]).expect("ASCII").split_once(" - ").expect("a file and an advice");
        assert!(entry.contains(file), "{file}");
        assert_eq!(advice, "use the same files as this server");
        // The client gets the reason before the boot.
        let kicked = |plain: &Vec<u8>| {
            Datagram::parse(plain, None)
                .is_ok_and(|datagram| datagram.messages().any(|message| message.kind().0 == 4))
        };
        let address = world.clients[client].address;
        let to_client: Vec<_> = world.sent.iter().filter(|(_, to, _)| *to == address).collect();
        let reason =
            to_client.iter().position(|(_, _, plain)| plain.windows(last.len()).any(|part| part == last));
        let booted = to_client.iter().position(|(_, _, plain)| kicked(plain));
        assert!(reason < booted && reason.is_some(), "{reason:?} {booted:?}");
    }
    assert_eq!(world.session.status(world.now).in_game, 1);
}

/// S-23: the manifests in force at the end of the check apply to all answers.
#[test]
fn changed_manifests_apply_to_a_running_check() {
    let good = learned_manifest();
    let other = Manifest::parse(&good.to_string().replace("version 7E0CE243", "version 11111111"));
    let other = other.expect("well formed");
    assert_ne!(other, good);
    let strict = |manifests: &[&Manifest]| Checksums::Strict(manifests.iter().copied().cloned().collect());
    let many = [vec![&other; 70], vec![&good]].concat();
    let version = Some("round 0: 60: other version");
    let no_manifest = Some("round 0: scripts/App.pyc: not in the manifest");
    for (before, after, expected) in [
        (strict(&[&other, &good]), strict(&[&other]), version),
        (strict(&[&good, &other]), strict(&[&other, &good]), None),
        (Checksums::Permissive, strict(&[&other]), version),
        (Checksums::Permissive, strict(&[&good]), None),
        (strict(&[&good]), Checksums::Permissive, None),
        (strict(&many), strict(&many), None),
        (strict(&[&good]), strict(&[]), no_manifest),
        (strict(&[&good]), strict(&[&Manifest::default()]), no_manifest),
    ] {
        let config = Config { checksums: before, ..Config::default() };
        let mut world = TestWorld::new(config.clone());
        let kirk = world.connect("Kirk", "");
        world.clients[kirk].answers_file_check = false;
        world.run(SECOND);
        world.send(kirk, &file_check_reply(0));
        world.run(SECOND);
        assert_eq!(world.take_received(kirk).len(), 2, "two requests");
        world.session.reconfigure(Config { checksums: after, ..config }, world.now);
        world.clients[kirk].answers_file_check = true;
        world.send(kirk, &file_check_reply(1));
        world.run(2 * SECOND);
        let mismatch = world.events.iter().find_map(|event| match event {
            Event::ChecksumMismatch { mismatch, .. } => Some(mismatch.to_string()),
            _ => None,
        });
        assert_eq!((mismatch.as_deref(), world.is_in_game(kirk)), (expected, expected.is_none()));
    }
}

/// S-23: the settings can allow files that no manifest contains, but not missing answers.
#[test]
fn extra_files_can_be_allowed_and_no_reply_is_a_mismatch() {
    let checksums = Checksums::Strict(vec![learned_manifest()]);
    let mut world = TestWorld::new(Config { checksums, extra_files: true, ..Config::default() });
    let modder = world.connect("Modder", "");
    world.clients[modder].ships_reply = ships_reply(52, 0x3EB2_3EBA);
    world.run(2 * SECOND);
    assert!(world.is_in_game(modder));
    let silent = world.connect("Silent", "");
    world.clients[silent].answers_file_check = false;
    world.run(25 * SECOND);
    assert!(world.event_names().contains(&"checksum_mismatch"));
    assert_eq!(world.session.players().count(), 1);
}

/// S-24
#[test]
fn refusal_opcode_is_configurable() {
    let checksums = Checksums::Strict(vec![learned_manifest()]);
    let mut world =
        TestWorld::new(Config { checksums, refusal_opcode: Opcode::VERSION_DIFFERENT, ..Config::default() });
    let modder = world.connect("Modder", "");
    world.clients[modder].ships_reply = ships_reply(3, 1);
    world.run(2 * SECOND);
    assert_eq!(world.take_received(modder).pop().expect("a refusal")[0], 0x23);
}
