/* Ordinary descriptors behave normally with the library in the program, also while a port is open. Usage: unrelated PORT */
#include "common.h"
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

static void
ordinary(void)
{
	struct epoll_event e = { .events = EPOLLIN };
	struct timeval none = {0, 0};
	struct stat st;
	int p[2], d, ep, file, status;
	char c = 'x';
	fd_set r;
	pid_t child;

	CHECK(pipe(p) == 0, "pipe");
	CHECK(poll_for(p[0], POLLIN, 0) == 0 && poll_for(p[1], POLLOUT, 0) == POLLOUT, "empty pipe");
	CHECK(write(p[1], &c, 1) == 1, "write");
	CHECK(poll_for(p[0], POLLIN, 0) == POLLIN, "full pipe");
	FD_ZERO(&r);
	FD_SET(p[0], &r);
	CHECK(select(p[0] + 1, &r, NULL, NULL, &none) == 1 && FD_ISSET(p[0], &r), "select");
	ep = epoll_create1(0);
	e.data.u64 = 0x1234567890abcdefu;
	CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &e) == 0, "epoll_ctl");
	memset(&e, 0, sizeof(e));
	CHECK(epoll_wait(ep, &e, 1, 0) == 1 && e.data.u64 == 0x1234567890abcdefu, "epoll_wait");
	d = fcntl(p[0], F_DUPFD, 100);
	CHECK(d >= 100, "fcntl");
	CHECK(dup2(p[1], d) == d && poll_for(d, POLLOUT, 0) == POLLOUT, "dup2");
	CHECK(close(d) == 0 && close(d) < 0 && errno == EBADF, "close");
	file = open("/proc/self/exe", O_RDONLY);
	CHECK(file >= 0 && fstat(file, &st) == 0 && S_ISREG(st.st_mode), "a file is a file");
	CHECK(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, file, 0) != MAP_FAILED, "mmap");
	CHECK(ioctl(file, NIOCTXSYNC, NULL) < 0 && errno == ENOTTY, "no netmap descriptor: %d", errno);
	CHECK(open("/dev/netmap/x", O_RDWR) < 0 && errno == ENOENT, "another path");
	child = fork();
	if (child == 0)
		_exit(read(p[0], &c, 1) == 1 ? 7 : 8);
	CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7, "fork");
	{
		char *argv[] = {(char *)"true", NULL}, *envp[] = {NULL};

		CHECK(posix_spawn(&child, "/bin/true", NULL, NULL, argv, envp) == 0, "spawn");
		CHECK(waitpid(child, &status, 0) == child && status == 0, "true");
	}
	close(file);
	close(ep);
	close(p[0]);
	close(p[1]);
}

int
main(int argc, char **argv)
{
	struct stat st;
	struct port p;
	pid_t child;
	int status, second;

	CHECK(argc == 2, "a port");
	alarm(30);
	ordinary();
	p = open_port(argv[1]);
	ordinary();
	CHECK(fstat(p.fd, &st) == 0 && S_ISCHR(st.st_mode), "a netmap descriptor is a character device");
	/* A descriptor that a vfork child closes stays open here. */
	child = vfork();
	if (child == 0) {
		close(p.fd);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0, "vfork");
	CHECK(ioctl(p.fd, NIOCRXSYNC, NULL) == 0, "still a port");
	/* A descriptor number that is reused for something else is no longer a port. */
	second = dup(p.fd);
	CHECK(second >= 0 && ioctl(second, NIOCRXSYNC, NULL) == 0, "a duplicate is the port too");
	CHECK(dup2(0, second) == second && ioctl(second, NIOCRXSYNC, NULL) < 0, "overwritten");
	CHECK(ioctl(p.fd, NIOCRXSYNC, NULL) == 0, "the port is not");
	close_port(&p);
	ordinary();
	return 0;
}
