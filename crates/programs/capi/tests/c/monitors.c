/* Copies of a port's received frames (/r), sent frames (/t), both (/z). Usage: monitors FROM TO (ports of a switch) */
#include "common.h"
#include <libnetmap.h>

static uint32_t
drain(struct nmport_d *d, uint32_t expected)
{
	uint32_t got = 0;

	while (got < expected) {
		CHECK(poll_for(d->fd, POLLIN, 5000) & POLLIN, "%u of %u frames came", got, expected);
		take_frames(NETMAP_RXRING(d->nifp, 0), &got);
	}
	CHECK(poll_for(d->fd, POLLIN, 20) == 0, "no more than %u", expected);
	return got;
}

int
main(int argc, char **argv)
{
	struct nmport_d *watch_tx, *watch_rx, *both, *none;
	struct port from, to;
	uint32_t sent = 0, got = 0;
	char name[128];

	CHECK(argc == 3, "two ports");
	alarm(30);
	nmctx_get()->verbose = 0;
	snprintf(name, sizeof(name), "%s/r", argv[2]);
	CHECK(nmport_open(name) == NULL && errno == EINVAL, "nothing to watch yet");
	to = open_port(argv[2]);
	from = open_port(argv[1]);
	watch_rx = nmport_open(name);
	snprintf(name, sizeof(name), "%s/t", argv[1]);
	watch_tx = nmport_open(name);
	snprintf(name, sizeof(name), "%s/z", argv[2]);
	both = nmport_open(name);
	snprintf(name, sizeof(name), "%s/r", argv[1]);
	none = nmport_open(name);
	CHECK(watch_rx && watch_tx && both && none, "monitors");
	CHECK(both->first_tx_ring == 0 && both->last_tx_ring == 0, "one tx ring, from %u to %u", both->first_tx_ring,
	    both->last_tx_ring);
	CHECK(nm_ring_space(NETMAP_TXRING(both->nifp, 0)) > 0, "which has room");
	put_frames(NETMAP_TXRING(from.nifp, 0), &sent, 100);
	CHECK(ioctl(from.fd, NIOCTXSYNC, NULL) == 0, "txsync");
	while (got < 100) {
		CHECK(poll_for(to.fd, POLLIN, 5000) & POLLIN, "frames");
		take_frames(NETMAP_RXRING(to.nifp, 0), &got);
	}
	/* A zero-copy monitor sees frames when their slots are returned. */
	CHECK(ioctl(to.fd, NIOCRXSYNC, NULL) == 0, "rxsync");
	drain(watch_rx, 100);
	drain(watch_tx, 100);
	drain(both, 100);
	CHECK(poll_for(none->fd, POLLIN, 20) == 0, "the sender received nothing");
	nmport_close(none);
	nmport_close(both);
	nmport_close(watch_tx);
	nmport_close(watch_rx);
	return 0;
}
