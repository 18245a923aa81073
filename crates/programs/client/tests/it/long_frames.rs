//! Tests of frames of about 65,536 bytes, the length of the largest buffer.

use netvale::Port;

/// Objective: a frame of 65,536 bytes is sent and received whole. This is the length of the longest buffer, but one
/// byte more than a slot's length field can express.
#[test]
fn as_long_as_a_buffer() {
    let (mut a, mut b) = Port::pipe_pair(8, 65_536).unwrap();
    for len in [65_535, 65_536, 65_537] {
        let frame: Vec<u8> = (0..len).map(|i| (i * 7 % 251) as u8).collect();
        assert!(a.tx()[0].send(&frame));
        a.tx()[0].sync();
        b.rx()[0].sync();
        let mut came = vec![0; 70_000];
        assert_eq!(b.rx()[0].recv(&mut came), Some(len));
        assert!(came[..len] == frame, "{len}");
        b.rx()[0].sync();
    }
}
