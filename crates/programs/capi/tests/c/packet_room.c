/*
 * A packet socket on a full port: its errors, blocking and not, and poll, select and epoll that wait for room on it.
 * Usage: packet_room NAME, a pipe without its end.
 */
#define _GNU_SOURCE
#include "common.h"
#include <net/if.h>
#include <netpacket/packet.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <time.h>

static struct port to;
static int from;
static uint32_t sent, got;

static ssize_t
transmit(int flags)
{
	char frame[FRAME];
	ssize_t n;

	fill(frame, FRAME, sent);
	errno = 0;
	n = send(from, frame, FRAME, flags);
	CHECK(n == FRAME || n == -1, "%zd", n);
	sent += n == FRAME;
	return n;
}

static void
fill_up(int flags)
{
	while (transmit(flags) == FRAME)
		CHECK(sent - got < 100000, "never full");
	CHECK(errno == EAGAIN, "a full port");
}

static void
drain(void)
{
	while (got < sent) {
		CHECK(poll_for(to.fd, POLLIN, 5000) & POLLIN, "frame %u of %u", got, sent);
		take_frames(NETMAP_RXRING(to.nifp, 0), &got);
	}
	CHECK(ioctl(to.fd, NIOCRXSYNC, NULL) == 0, "rxsync");
}

static void *
drain_late(void *arg)
{
	struct timespec nap = { 0, 20000000 };

	(void)arg;
	/* The sender mostly falls asleep; the test is valid if it does not. */
	nanosleep(&nap, NULL);
	drain();
	return NULL;
}

static pthread_t
drained_later(void)
{
	pthread_t t;

	CHECK(pthread_create(&t, NULL, drain_late, NULL) == 0, "a thread");
	return t;
}

static int
polled(int ms)
{
	short found = poll_for(from, POLLOUT, ms);

	CHECK((found & ~POLLOUT) == 0, "%x", found);
	return found != 0;
}

static int
selected(int ms)
{
	struct timeval limit = { ms / 1000, (ms % 1000) * 1000 };
	fd_set set;
	int n;

	FD_ZERO(&set);
	FD_SET(from, &set);
	n = select(from + 1, NULL, &set, NULL, &limit);
	CHECK(n >= 0 && (FD_ISSET(from, &set) != 0) == n, "%d", n);
	return n;
}

static int set;

static int
epolled(int ms)
{
	struct epoll_event e = { 0 };
	int n;

	n = epoll_wait(set, &e, 1, ms);
	CHECK(n == 0 || (n == 1 && e.events == EPOLLOUT && e.data.fd == from), "%d %x", n, e.events);
	return n;
}

static void
shows_room(int (*waited)(int))
{
	pthread_t t;

	CHECK(waited(0) == 1 && waited(5000) == 1, "empty, and no room");
	fill_up(MSG_DONTWAIT);
	CHECK(waited(0) == 0 && waited(20) == 0, "full, and room");
	t = drained_later();
	CHECK(waited(5000) == 1, "sleeps on");
	CHECK(transmit(MSG_DONTWAIT) == FRAME, "room that is none");
	CHECK(pthread_join(t, NULL) == 0, "join");
	drain();
	CHECK(waited(0) == 1, "read, and no room");
}

static void
bind_to(const char *name)
{
	struct sockaddr_ll address = { .sll_family = AF_PACKET };

	from = socket(AF_PACKET, SOCK_RAW, 0);
	if (from < 0 && errno == EPERM) {
		fprintf(stderr, "skipped: no right to open packet sockets\n");
		exit(77);
	}
	address.sll_ifindex = (int)if_nametoindex(name);
	CHECK(bind(from, (void *)&address, sizeof(address)) == 0, "bind");
}

/* All ways to limit the wait of a send. */
static void
refusals(void)
{
	struct timeval limit = { 0, 30000 };
	static char frame[80000];

	CHECK(send(from, frame, sizeof(frame), 0) == -1 && errno == EMSGSIZE, "too long");
	fill_up(MSG_DONTWAIT);
	CHECK(fcntl(from, F_SETFL, O_NONBLOCK) == 0, "fcntl");
	CHECK(transmit(0) == -1 && errno == EAGAIN, "O_NONBLOCK");
	CHECK(write(from, frame, FRAME) == -1 && errno == EAGAIN, "O_NONBLOCK, write");
	CHECK(fcntl(from, F_SETFL, 0) == 0, "fcntl");
	CHECK(setsockopt(from, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) == 0, "a limit");
	CHECK(transmit(0) == -1 && errno == EAGAIN, "SO_SNDTIMEO");
	drain();
	CHECK(transmit(0) == FRAME, "room");
	memset(&limit, 0, sizeof(limit));
	CHECK(setsockopt(from, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) == 0, "no limit");
}

int
main(int argc, char **argv)
{
	struct epoll_event e = { .events = EPOLLOUT | EPOLLIN };
	char name[128];
	pthread_t t;

	CHECK(argc == 2, "a name");
	alarm(60);
	snprintf(name, sizeof(name), "%s{1", argv[1]);
	bind_to(name);
	snprintf(name, sizeof(name), "%s}1", argv[1]);
	CHECK(polled(0) == 1, "room, before anything was opened");
	to = open_port(name);
	refusals();
	drain();
	shows_room(polled);
	shows_room(selected);
	set = epoll_create1(0);
	e.data.fd = from;
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, from, &e) == 0, "add");
	shows_room(epolled);
	close(set);
	/* Blocking. */
	fill_up(MSG_DONTWAIT);
	t = drained_later();
	CHECK(transmit(0) == FRAME, "not waited");
	CHECK(pthread_join(t, NULL) == 0, "join");
	drain();
	fill_up(MSG_DONTWAIT);
	close(from);
	drain();
	close_port(&to);
	return 0;
}
