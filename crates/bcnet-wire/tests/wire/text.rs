//! Messages and errors, as a person reads them.

use bcnet_observe::NonStock;
use bcnet_wire::{Datagram, Kind, Reason, Role};

use crate::{message, unhex};

#[test]
fn every_message_reads_well_in_one_line() {
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
    assert_eq!(Reason::CountZero.to_string(), "count_zero");
    let odd = NonStock::SENDER | NonStock::TAIL;
    assert_eq!(
        (odd.to_string(), format!("{odd:?}")),
        ("sender, tail".into(), "NonStock(sender, tail)".into())
    );
}

#[test]
fn errors_say_what_which_field_and_where() {
    for (datagram, shown) in [
        ("", "truncated sender at byte 0"),
        ("01 01 32 06 80 05", "truncated sequence at byte 6"),
        ("01 01 33", "unknown type 0x33 at byte 2"),
        ("01 00", "count 0 at byte 1: a datagram holds at least one message"),
        ("01 01 02 02", "bytes after the last message, from byte 3"),
        ("01 01 04 06 C0 02 00 04", "size 6 at byte 3 is too small, it is at least 7"),
        (
            "01 01 00 0C C0 01 00 02 0A 0A 0A EF 41 00",
            "name at byte 12 is not UTF-16LE text that ends in a zero unit",
        ),
    ] {
        let bytes = unhex(datagram);
        assert_eq!(Datagram::parse(&bytes, None).expect_err(datagram).to_string(), shown);
    }
    let names = [
        Reason::Truncated,
        Reason::BadSize { found: 0, least: 1 },
        Reason::UnknownType(Kind(9)),
        Reason::Trailing,
        Reason::CountZero,
        Reason::BadText,
    ];
    let names = names.map(Reason::name);
    assert_eq!(names, ["truncated", "bad_size", "unknown_type", "trailing", "count_zero", "bad_text"]);
}
