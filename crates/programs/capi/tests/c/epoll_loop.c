/* epoll(7): level- and edge-triggered, one-shot, beside an ordinary descriptor. Usage: epoll_loop FROM TO */
#include "common.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>

static void
send_some(struct port *p, uint32_t *sent, uint32_t count)
{
	put_frames(NETMAP_TXRING(p->nifp, 0), sent, *sent + count);
	CHECK(ioctl(p->fd, NIOCTXSYNC, NULL) == 0, "txsync");
}

static void
control(int ep, int op, int fd, uint32_t events)
{
	struct epoll_event e = { .events = events, .data.u64 = 1000 + (uint64_t)fd };

	CHECK(epoll_ctl(ep, op, fd, &e) == 0, "epoll_ctl");
}

/* Waits for one event; 0 if none comes. */
static int
next(int ep, int ms)
{
	struct epoll_event e;
	int n = epoll_wait(ep, &e, 1, ms);

	CHECK(n >= 0, "epoll_wait");
	return n == 0 ? 0 : (int)(e.data.u64 - 1000);
}

int
main(int argc, char **argv)
{
	uint32_t sent = 0, got = 0;
	struct epoll_event e;
	struct port from, to;
	int ep, other, k;

	CHECK(argc == 3, "two ports");
	alarm(30);
	to = open_port(argv[2]);
	from = open_port(argv[1]);
	ep = epoll_create1(EPOLL_CLOEXEC);
	other = eventfd(0, EFD_NONBLOCK);
	CHECK(ep >= 0 && other >= 0, "descriptors");
	CHECK(epoll_ctl(other, EPOLL_CTL_ADD, to.fd, &e) < 0 && errno == EINVAL, "not an epoll descriptor");
	CHECK(epoll_ctl(ep, EPOLL_CTL_DEL, to.fd, NULL) < 0 && errno == ENOENT, "not in the set yet");

	/* Level-triggered. */
	control(ep, EPOLL_CTL_ADD, to.fd, EPOLLIN);
	control(ep, EPOLL_CTL_ADD, other, EPOLLIN);
	CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, to.fd, &e) < 0 && errno == EEXIST, "twice");
	CHECK(next(ep, 10) == 0, "nothing is there");
	for (k = 0; k < 100; k++) {
		send_some(&from, &sent, 10);
		while (got < sent) {
			CHECK(next(ep, 5000) == to.fd, "frames are there");
			take_frames(NETMAP_RXRING(to.nifp, 0), &got);
		}
	}
	CHECK(eventfd_write(other, 1) == 0, "eventfd");
	CHECK(next(ep, 5000) == other, "the ordinary descriptor is seen");
	CHECK(next(ep, 5000) == other, "and again");
	{
		eventfd_t v;

		CHECK(eventfd_read(other, &v) == 0, "eventfd");
	}

	/* Edge-triggered: unread frames are not reported again, new ones are. */
	control(ep, EPOLL_CTL_MOD, to.fd, EPOLLIN | EPOLLET);
	send_some(&from, &sent, 5);
	CHECK(next(ep, 5000) == to.fd, "the edge");
	CHECK(next(ep, 30) == 0, "no second report");
	send_some(&from, &sent, 5);
	CHECK(next(ep, 5000) == to.fd, "another edge");
	while (got < sent) {
		CHECK(ioctl(to.fd, NIOCRXSYNC, NULL) == 0, "rxsync");
		take_frames(NETMAP_RXRING(to.nifp, 0), &got);
	}

	/* One-shot. */
	control(ep, EPOLL_CTL_MOD, to.fd, EPOLLIN | EPOLLONESHOT);
	send_some(&from, &sent, 5);
	CHECK(next(ep, 5000) == to.fd, "the shot");
	send_some(&from, &sent, 5);
	CHECK(next(ep, 30) == 0, "disarmed");
	control(ep, EPOLL_CTL_MOD, to.fd, EPOLLIN | EPOLLONESHOT);
	CHECK(next(ep, 5000) == to.fd, "armed again");

	CHECK(epoll_ctl(ep, EPOLL_CTL_DEL, to.fd, NULL) == 0, "del");
	CHECK(next(ep, 10) == 0, "gone from the set");
	return 0;
}
