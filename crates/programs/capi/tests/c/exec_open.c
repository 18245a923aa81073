/* The program executes itself with the descriptor open, and continues to use it. Usage: exec_open FROM TO */
#include "common.h"

int
main(int argc, char **argv)
{
	char fds[2][16], size[2][32], ofs[2][32];
	struct port p[2];
	int i;

	alarm(30);
	if (argc == 8) {
		for (i = 0; i < 2; i++) {
			memset(&p[i], 0, sizeof(p[i]));
			p[i].fd = atoi(argv[2 + 3 * i]);
			p[i].reg.nr_memsize = strtoull(argv[3 + 3 * i], NULL, 10);
			p[i].mem = mmap(NULL, p[i].reg.nr_memsize, PROT_READ | PROT_WRITE, MAP_SHARED, p[i].fd, 0);
			CHECK(p[i].mem != MAP_FAILED, "mmap after exec");
			p[i].nifp = NETMAP_IF(p[i].mem, strtoull(argv[4 + 3 * i], NULL, 10));
		}
		exchange(&p[0], &p[1], 2000);
		return 0;
	}
	CHECK(argc == 3, "two ports");
	for (i = 0; i < 2; i++) {
		p[i] = open_port(argv[2 - i]);
		snprintf(fds[i], sizeof(fds[i]), "%d", p[i].fd);
		snprintf(size[i], sizeof(size[i]), "%llu", (unsigned long long)p[i].reg.nr_memsize);
		snprintf(ofs[i], sizeof(ofs[i]), "%llu", (unsigned long long)p[i].reg.nr_offset);
	}
	execl("/proc/self/exe", argv[0], "again", fds[1], size[1], ofs[1], fds[0], size[0], ofs[0], NULL);
	CHECK(0, "exec");
	return 1;
}
