//! The text forms of messages and errors.

use bcnet_observe::NonStock;
use bcnet_wire::{Datagram, Kind, Role, Text, WireErrorReason, is_printable};

use crate::{message, unhex};

#[test]
fn every_message_displays_on_one_line() {
    for (each, shown) in [
        ("01 02 00 01 01", "ack game seq=2 part=1"),
        ("01 01 00 02", "ack control seq=1"),
        ("02", "keepalive"),
        ("03 06 C0 00 00 02", "connect reply seq=0: you are peer 2"),
        (
            "03 0F C0 00 00 0A 0A 0A EF 5F 0A 00 00 00 00",
            "connect request seq=0: from 10.10.10.239 nonce=0x00000A5F password=\"\"",
        ),
        ("04 07 C0 02 00 04 02", "boot seq=2: peer 2, kicked"),
        ("05 0A C0 02 00 02 0A 0A 0A EF", "disconnect seq=2: peer 2 at 10.10.10.239"),
        ("32 04 00 07", "data unreliable 1 byte"),
        ("32 06 C0 05 00 28", "data seq=5 urgent 1 byte"),
        ("32 07 A0 02 00 00 03", "data seq=2 part=0/3 0 bytes"),
        ("32 06 A0 02 00 07", "data seq=2 part=7 0 bytes"),
        ("32 04 20 07", "data unreliable part=7 0 bytes"),
    ] {
        assert_eq!(message(each).to_string(), shown);
    }
    let datagram = unhex("01 01 02");
    assert_eq!(
        Datagram::parse(&datagram, None).expect("well formed").to_string(),
        "from host: 1 message in 3 bytes"
    );
    let datagram = unhex("FF 02 02 02");
    let shown = Datagram::parse(&datagram, None).expect("well formed").to_string();
    assert_eq!(shown, "from unassigned: 2 messages in 4 bytes");
    assert_eq!([Role::Host, Role::Client].map(|role| role.to_string()), ["host", "client"]);
    assert_eq!(WireErrorReason::CountZero.to_string(), "count_zero");
    let flags = NonStock::SENDER | NonStock::TAIL;
    assert_eq!(
        (flags.to_string(), format!("{flags:?}")),
        ("sender, tail".into(), "NonStock(sender, tail)".into())
    );
}

#[test]
fn errors_display_reason_field_and_offset() {
    for (datagram, shown) in [
        ("", "truncated sender at byte 0"),
        ("01 01 32 06 80 05", "truncated sequence at byte 6"),
        ("01 01 33", "unknown type 0x33 at byte 2"),
        ("01 00", "count 0 at byte 1: a datagram holds at least one message"),
        ("01 01 02 02", "bytes after the last message, from byte 3"),
        ("01 01 04 06 C0 02 00 04", "size 6 at byte 3 is too small; the minimum is 7"),
        (
            "01 01 00 0C C0 01 00 02 0A 0A 0A EF 41 00",
            "name at byte 12 is not UTF-16LE text that ends in a zero unit",
        ),
    ] {
        let bytes = unhex(datagram);
        assert_eq!(Datagram::parse(&bytes, None).expect_err(datagram).to_string(), shown);
    }
    let names = [
        WireErrorReason::Truncated,
        WireErrorReason::BadSize { found: 0, least: 1 },
        WireErrorReason::UnknownType(Kind(9)),
        WireErrorReason::Trailing,
        WireErrorReason::CountZero,
        WireErrorReason::BadText,
    ];
    let names = names.map(WireErrorReason::name);
    assert_eq!(names, ["truncated", "bad_size", "unknown_type", "trailing", "count_zero", "bad_text"]);
}

/// T-71: any text becomes short enough, valid and printable; cleaning it again does not change it.
#[test]
fn cleaned_text_is_always_valid_and_clean() {
    // Units with a special meaning; the test mixes them with random ones.
    let special = [
        0x20, 0x0A, 0x1B, 0x9B, 0xA0, 0xAD, 0x200B, 0x202E, 0x2066, 0x3000, 0xD800, 0xDBFF, 0xDC00, 0xDFFF,
        0xFEFF,
    ];
    let mut state = 7_u64;
    let mut random = |limit: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    for _ in 0..20_000 {
        let (len, max) = (random(40), usize::try_from(random(30)).expect("small"));
        let units: Vec<u16> = (0..len)
            .map(|_| match random(3) {
                0 => special[usize::try_from(random(special.len() as u64)).expect("small")],
                1 => u16::try_from(0x21 + random(0x5E)).expect("a letter"),
                _ => u16::try_from(1 + random(0xFFFF)).expect("16 bits"),
            })
            .collect();
        let bytes: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
        let clean = Text::new(&bytes).expect("whole units").cleaned(max);
        assert!(clean.len() <= max, "{units:04X?}");
        let text = Text::new(&clean).expect("whole units");
        let units: Vec<u16> = clean.chunks(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]])).collect();
        let strict = String::from_utf16(&units).expect("valid");
        assert!(strict.chars().all(is_printable) && strict.trim() == strict, "{strict:?}");
        assert_eq!(text.cleaned(max), clean);
        assert_eq!(text.to_string(), strict);
    }
}

/// T-71: printable characters of any script stay; all others are removed.
#[test]
fn cleaning_removes_only_unprintable_characters() {
    for c in "aZ~ äßñ€Жλ漢字あ한🖖\u{301}".chars() {
        assert!(is_printable(c), "{c:?}");
    }
    let hidden = [
        '\0',
        '\x1B',
        '\n',
        '\x7F',
        '\u{9B}',
        '\u{AD}',
        '\u{200B}',
        '\u{200D}',
        '\u{200E}',
        '\u{2028}',
        '\u{202E}',
        '\u{2067}',
        '\u{FEFF}',
        '\u{E0041}',
    ];
    for c in hidden {
        assert!(!is_printable(c), "{c:?}");
    }
    let name = message("00 10 C0 01 00 02 0A 0A 0A EF 41 00 2E 20 00 00").to_string();
    assert_eq!(name, "identity seq=1: peer 2 at 10.10.10.239 is \"A\\u{202e}\"");
}
