/* Sets of epoll(7) that contain netmap descriptors, with every wait call; EPOLLEXCLUSIVE; io_uring is refused, so that
 * programs fall back. Usage: ways_to_wait FROM TO */
#define _GNU_SOURCE
#include "common.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/syscall.h>

#ifndef SYS_io_uring_setup
#define SYS_io_uring_setup 425
#endif

static struct port from, to;
static uint32_t sent, got;

static void
send_some(void)
{
	put_frames(NETMAP_TXRING(from.nifp, 0), &sent, sent + 5);
	CHECK(ioctl(from.fd, NIOCTXSYNC, NULL) == 0, "txsync");
}

static void
take_all(void)
{
	while (got < sent) {
		CHECK(ioctl(to.fd, NIOCRXSYNC, NULL) == 0, "rxsync");
		take_frames(NETMAP_RXRING(to.nifp, 0), &got);
	}
}

static int
control(int ep, int op, int fd, uint32_t events)
{
	struct epoll_event e = { .events = events, .data.fd = fd };

	return epoll_ctl(ep, op, fd, &e);
}

static int
by_epoll(int ep, int ms)
{
	struct epoll_event e[4];
	int n = epoll_wait(ep, e, 4, ms), i;

	CHECK(n >= 0, "epoll_wait");
	for (i = 0; i < n; i++)
		CHECK(e[i].events == EPOLLIN, "readable, and nothing else");
	return n == 0 ? 0 : e[0].data.fd;
}

static int
by_poll(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int n = poll(&p, 1, ms);

	CHECK(n == 0 || (n == 1 && p.revents == POLLIN), "poll");
	return n;
}

static int
by_select(int fd, int ms)
{
	struct timeval t = { ms / 1000, ms % 1000 * 1000 };
	fd_set r;
	int n;

	FD_ZERO(&r);
	FD_SET(fd, &r);
	n = select(fd + 1, &r, NULL, NULL, &t);
	CHECK(n == 0 || (n == 1 && FD_ISSET(fd, &r)), "select");
	return n;
}

/* A wait for a set, or for a set that contains it, waits for the set's members. */
static void
nested(int inner_first)
{
	int other = eventfd(0, EFD_NONBLOCK), sets[3], i;
	eventfd_t v;

	for (i = 0; i < 3; i++)
		CHECK((sets[i] = i == 1 ? epoll_create(1) : epoll_create1(EPOLL_CLOEXEC)) >= 0, "set");
	if (inner_first)
		CHECK(control(sets[0], EPOLL_CTL_ADD, to.fd, EPOLLIN) == 0, "inner");
	CHECK(control(sets[1], EPOLL_CTL_ADD, sets[0], EPOLLIN) == 0, "a set in a set");
	CHECK(control(sets[2], EPOLL_CTL_ADD, sets[1], EPOLLIN) == 0, "and that in another");
	CHECK(control(sets[0], EPOLL_CTL_ADD, sets[2], EPOLLIN) < 0 && errno == ELOOP, "no circle");
	if (!inner_first)
		CHECK(control(sets[0], EPOLL_CTL_ADD, to.fd, EPOLLIN) == 0, "inner");
	CHECK(control(sets[0], EPOLL_CTL_ADD, other, EPOLLIN) == 0, "an ordinary descriptor");
	for (i = 0; i < 3; i++)
		CHECK(by_poll(sets[i], 5) == 0 && by_select(sets[i], 5) == 0 && by_epoll(sets[i], 5) == 0, "quiet");
	send_some();
	for (i = 0; i < 3; i++) {
		CHECK(by_poll(sets[i], 5000) == 1, "poll(set)");
		CHECK(by_select(sets[i], 5000) == 1, "select(set)");
		CHECK(by_epoll(sets[i], 5000) == (i == 0 ? to.fd : sets[i - 1]), "epoll_wait(set)");
	}
	take_all();
	CHECK(by_poll(sets[2], 5) == 0, "quiet again");
	CHECK(eventfd_write(other, 1) == 0, "eventfd");
	CHECK(by_epoll(sets[2], 5000) == sets[1] && by_epoll(sets[0], 5000) == other, "the ordinary descriptor");
	CHECK(by_poll(sets[2], 5000) == 1 && eventfd_read(other, &v) == 0, "and again");

	/* News is reported once per edge. */
	CHECK(control(sets[2], EPOLL_CTL_MOD, sets[1], EPOLLIN | EPOLLET) == 0, "mod");
	send_some();
	CHECK(by_epoll(sets[2], 5000) == sets[1] && by_epoll(sets[2], 20) == 0, "the edge");
	send_some();
	CHECK(by_epoll(sets[2], 5000) == sets[1] && by_epoll(sets[1], 20) == sets[0], "another edge, the level");
	CHECK(control(sets[1], EPOLL_CTL_DEL, sets[0], 0) == 0, "del");
	CHECK(by_epoll(sets[1], 5) == 0 && by_poll(sets[0], 5) == 1, "gone from there alone");
	take_all();
	for (i = 0; i < 3; i++)
		CHECK(close(sets[i]) == 0, "close");
	close(other);
}

/* A descriptor that reuses a set's number is not taken for the set. */
static void
other_ends(int way)
{
	int set = epoll_create1(0), other;

	CHECK(set >= 0 && control(set, EPOLL_CTL_ADD, to.fd, EPOLLIN) == 0, "set");
	send_some();
	CHECK(by_poll(set, 5000) == 1, "readable");
	other = eventfd(0, EFD_NONBLOCK);
	if (way == 0)
		CHECK(dup2(other, set) == set, "dup2");
	else
		CHECK(close_range(set, set, 0) == 0 && dup(other) == set, "close_range");
	CHECK(by_poll(set, 5) == 0, "the number is an eventfd's now");
	take_all();
	close(set);
	close(other);
}

static void
exclusive(void)
{
	int ep = epoll_create1(0);

	CHECK(control(ep, EPOLL_CTL_ADD, to.fd, EPOLLIN | EPOLLEXCLUSIVE) == 0, "exclusive");
	send_some();
	CHECK(by_epoll(ep, 5000) == to.fd, "readable");
	take_all();
	CHECK(by_epoll(ep, 5) == 0, "quiet");
	close(ep);
}

/* Not available: the system call, and liburing's functions, which return the errno. */
static void
no_io_uring(void)
{
	char params[256], ring[1024];
	int (*init)(unsigned, void *, unsigned) = dlsym(RTLD_DEFAULT, "io_uring_queue_init");
	int (*with)(unsigned, void *, void *) = dlsym(RTLD_DEFAULT, "io_uring_queue_init_params");

	memset(params, 0, sizeof(params));
	CHECK(syscall(SYS_io_uring_setup, 8, params) < 0 && errno == ENOSYS, "io_uring_setup");
	CHECK(init != NULL && init(8, ring, 0) == -ENOSYS, "io_uring_queue_init");
	CHECK(with != NULL && with(8, ring, params) == -ENOSYS, "io_uring_queue_init_params");
	CHECK(syscall(SYS_getpid) == getpid(), "other calls");
}

int
main(int argc, char **argv)
{
	CHECK(argc == 3, "two ports");
	alarm(30);
	to = open_port(argv[2]);
	from = open_port(argv[1]);
	nested(1);
	nested(0);
	other_ends(0);
	other_ends(1);
	exclusive();
	no_io_uring();
	return 0;
}
