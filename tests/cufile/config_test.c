/* SPDX-License-Identifier: MIT */
/* Parameters, cufile.json, the environment, the log. */
#include "cufile/common.h"

#include <cufile_settings.h>

#include "../../cufile/params.h"

static void json(const char *text)
{
	FILE *f = fopen(test_path("cufile.json"), "w");

	ASSERT_TRUE(f != NULL);
	fputs(text, f);
	fclose(f);
	setenv("CUFILE_ENV_PATH_JSON", test_path("cufile.json"), 1);
	setenv("CUFILE_LOGFILE_PATH", test_path("log"), 1);
}

static bool log_has(const char *text)
{
	char buf[8192] = "";
	FILE *f = fopen(test_path("log"), "r");

	if (!f)
		return false;
	buf[fread(buf, 1, sizeof(buf) - 1, f)] = 0;
	fclose(f);
	return strstr(buf, text) != NULL;
}

static size_t size_of(CUFileSizeTConfigParameter_t p)
{
	size_t v = 0;

	ASSERT_CU(cuFileGetParameterSizeT(p, &v));
	return v;
}

static bool bool_of(CUFileBoolConfigParameter_t p)
{
	bool v = false;

	ASSERT_CU(cuFileGetParameterBool(p, &v));
	return v;
}

TEST(program_then_environment_then_file)
{
	size_t size[4], count[4];

	json("{ // comment\n \"properties\": { \"io_batchsize\": 64, /* another\n */ \"force_compat_mode\": true,\n"
	     "\"allow_compat_mode\": false, \"rdma_dev_addr_list\": [ \"10.0.0.1\" ], \"gds_rdma_write_support\": true,\n"
	     "\"posix_pool_slab_size_kb\": [ 8, 2048 ], \"posix_pool_slab_count\": [ 16, 2 ] },\n"
	     "\"logging\": { \"level\": \"WARN\", \"dir\": \"/tmp\" }, \"execution\": { \"max_io_threads\": 900 } }\n");
	setenv("CUFILE_FORCE_COMPAT_MODE", "false", 1);
	setenv("CUFILE_ALLOW_COMPAT_MODE", "true", 1);
	ASSERT_EQ(size_of(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE), 64);
	ASSERT_FALSE(bool_of(CUFILE_PARAM_FORCE_COMPAT_MODE));
	ASSERT_CU(cuFileGetParameterPosixPoolSlabArray(size, count, 4));
	ASSERT_EQ(size[1], 2048);
	ASSERT_EQ(count[1], 2);
	ASSERT_EQ(count[2], 0); /* two in place of the default's three */
	ASSERT_CU(cuFileSetParameterBool(CUFILE_PARAM_FORCE_COMPAT_MODE, true));
	ASSERT_CU(cuFileSetParameterSizeT(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, 32));
	ASSERT_CU(cuFileDriverOpen());
	ASSERT_EQ(size_of(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE), 32);
	ASSERT_EQ(size_of(CUFILE_PARAM_EXECUTION_MAX_IO_THREADS), 4); /* out of range: the default */
	ASSERT_TRUE(bool_of(CUFILE_PARAM_FORCE_COMPAT_MODE));
	ASSERT_TRUE(bool_of(CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE));
	ASSERT_TRUE(log_has("properties.rdma_dev_addr_list properties.gds_rdma_write_support"));
	ASSERT_FALSE(log_has("io_batchsize"));
	ASSERT_CU_ERR(cuFileSetParameterSizeT(CUFILE_PARAM_PROFILE_STATS, 1), CU_FILE_DRIVER_ALREADY_OPEN);
	ASSERT_CU_ERR(cuFileSetParameterBool(CUFILE_PARAM_PROFILE_NVTX, 1), CU_FILE_DRIVER_ALREADY_OPEN);
	ASSERT_CU_ERR(cuFileSetParameterString(CUFILE_PARAM_LOG_DIR, "/"), CU_FILE_DRIVER_ALREADY_OPEN);
}

/* The cufile.json that CUDA installs spells out NVIDIA's defaults: those are not a choice of the user. */
TEST(defaults_are_not_a_choice)
{
	json("{ \"execution\": { \"max_io_queue_depth\": 128 }, \"properties\": {\n"
	     "\"posix_pool_slab_size_kb\": [ 4, 1024, 16384 ], \"posix_pool_slab_count\": [ 128, 64, 64 ] } }\n");
	ASSERT_CU(cuFileDriverOpen());
	ASSERT_FALSE(cf_param_size_chosen(CUFILE_PARAM_EXECUTION_MAX_IO_QUEUE_DEPTH));
	ASSERT_EQ(cf_param_pool_bytes(), 0);
	ASSERT_CU(cuFileDriverClose());
	json("{ \"execution\": { \"max_io_queue_depth\": 32 }, \"properties\": {\n"
	     "\"posix_pool_slab_size_kb\": [ 1024 ], \"posix_pool_slab_count\": [ 4 ] } }\n");
	ASSERT_CU(cuFileDriverOpen());
	ASSERT_TRUE(cf_param_size_chosen(CUFILE_PARAM_EXECUTION_MAX_IO_QUEUE_DEPTH));
	ASSERT_EQ(cf_param_pool_bytes(), MIB(4));
	ASSERT_CU(cuFileDriverClose());
}

static unsigned int log_count(const char *text)
{
	char buf[65536] = "";
	FILE *f = fopen(test_path("log"), "r");
	unsigned int n = 0;

	ASSERT_TRUE(f != NULL);
	buf[fread(buf, 1, sizeof(buf) - 1, f)] = 0;
	fclose(f);
	for (const char *at = buf; (at = strstr(at, text)); at++)
		n++;
	return n;
}

/* Every setting without effect is logged once: parameters, unknown keys, environment variables. */
TEST(without_effect)
{
	json("{ \"logging\": { \"level\": \"WARN\" }, \"execution\": { \"parallel_io\": false },\n"
	     "\"properties\": { \"rdma_peer_type\": \"dmabuf\", \"use_poll_mode\": true },\n"
	     "\"fs\": { \"lustre\": { \"posix_gds_min_kb\": 4 } }, \"denylist\": { \"mounts\": [ ] } }");
	setenv("CUFILE_NVTX", "true", 1);
	setenv("CUFILE_NONSENSE", "7", 1);
	for (int i = 0; i < 3; i++) {
		ASSERT_CU(cuFileDriverOpen());
		ASSERT_FALSE(bool_of(CUFILE_PARAM_EXECUTION_PARALLEL_IO));
		ASSERT_TRUE(bool_of(CUFILE_PARAM_PROPERTIES_USE_POLL_MODE));
		ASSERT_TRUE(bool_of(CUFILE_PARAM_PROFILE_NVTX));
		ASSERT_CU(cuFileDriverClose());
	}
	ASSERT_EQ(log_count("execution.parallel_io"), 1);
	ASSERT_EQ(log_count("properties.rdma_peer_type"), 1);
	ASSERT_EQ(log_count("properties.use_poll_mode"), 1);
	ASSERT_EQ(log_count("fs.lustre.posix_gds_min_kb"), 1);
	ASSERT_EQ(log_count("CUFILE_NVTX"), 1);
	ASSERT_EQ(log_count("CUFILE_NONSENSE"), 1);
	ASSERT_EQ(log_count("logging.level"), 0);
	ASSERT_EQ(log_count("denylist"), 0);
	ASSERT_EQ(log_count("CUFILE_ENV_PATH_JSON"), 0);
}

TEST(strings_of_the_environment)
{
	char text[32];

	setenv("CUFILE_LOGFILE_PATH", "/tmp/b.log", 1);
	setenv("CUFILE_LOGGING_LEVEL", "INFO", 1);
	ASSERT_CU(cuFileGetParameterString(CUFILE_PARAM_ENV_LOGFILE_PATH, text, sizeof(text)));
	ASSERT_STREQ(text, "/tmp/b.log");
	ASSERT_CU(cuFileGetParameterString(CUFILE_PARAM_LOGGING_LEVEL, text, sizeof(text)));
	ASSERT_STREQ(text, "INFO");
	ASSERT_CU(cuFileSetParameterString(CUFILE_PARAM_ENV_LOGFILE_PATH, "/tmp/c.log"));
	ASSERT_CU(cuFileGetParameterString(CUFILE_PARAM_ENV_LOGFILE_PATH, text, sizeof(text)));
	ASSERT_STREQ(text, "/tmp/c.log");
}

TEST(values)
{
	size_t min, max, size[4], count[4];
	const size_t kb[] = { 64, 128 }, n[] = { 1, 2 };
	char text[32];

	unsetenv("CUFILE_ENV_PATH_JSON");
	ASSERT_CU(cuFileGetParameterMinMaxValue(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, &min, &max));
	ASSERT_EQ(min, 1);
	ASSERT_EQ(max, 256);
	ASSERT_CU(cuFileGetParameterString(CUFILE_PARAM_LOGGING_LEVEL, text, sizeof(text)));
	ASSERT_CU_ERR(cuFileGetParameterString(CUFILE_PARAM_ENV_LOGFILE_PATH, text, 32), CU_FILE_INVALID_VALUE);
	ASSERT_CU(cuFileSetParameterString(CUFILE_PARAM_LOGGING_LEVEL, "TRACE"));
	ASSERT_CU(cuFileGetParameterString(CUFILE_PARAM_LOGGING_LEVEL, text, sizeof(text)));
	ASSERT_STREQ(text, "TRACE");
	ASSERT_CU_ERR(cuFileGetParameterString(CUFILE_PARAM_LOGGING_LEVEL, text, 3), CU_FILE_INVALID_VALUE);
	ASSERT_CU(cuFileSetParameterString(CUFILE_PARAM_LOGGING_LEVEL, "LOUD"));
	ASSERT_CU(cuFileGetParameterString(CUFILE_PARAM_LOGGING_LEVEL, text, sizeof(text)));
	ASSERT_STREQ(text, "LOUD");
	for (int i = CUFILE_PARAM_LOGGING_LEVEL; i <= CUFILE_PARAM_LOG_DIR; i++)
		ASSERT_CU_ERR(cuFileSetParameterString((CUFileStringConfigParameter_t)i, ""), CU_FILE_INVALID_VALUE);
	setenv("CUFILE_LOGFILE_PATH", "", 1);
	ASSERT_CU(cuFileGetParameterString(CUFILE_PARAM_ENV_LOGFILE_PATH, text, sizeof(text)));
	ASSERT_STREQ(text, "");
	unsetenv("CUFILE_LOGFILE_PATH");
	ASSERT_CU_ERR(cuFileGetParameterString(CUFILE_PARAM_ENV_LOGFILE_PATH, text, sizeof(text)),
		      CU_FILE_INVALID_VALUE);
	ASSERT_CU(cuFileSetParameterString(CUFILE_PARAM_ENV_LOGFILE_PATH, "/tmp/a.log"));
	ASSERT_CU(cuFileGetParameterString(CUFILE_PARAM_ENV_LOGFILE_PATH, text, sizeof(text)));
	ASSERT_STREQ(text, "/tmp/a.log");
	ASSERT_CU_ERR(cuFileGetParameterSizeT((CUFileSizeTConfigParameter_t)12, &min), CU_FILE_INVALID_VALUE);
	ASSERT_CU(cuFileGetParameterPosixPoolSlabArray(size, count, 4));
	ASSERT_EQ(size[2], 16384);
	ASSERT_EQ(count[3], 0);
	ASSERT_CU(cuFileSetParameterPosixPoolSlabArray(kb, n, 2));
	ASSERT_CU(cuFileGetParameterPosixPoolSlabArray(size, count, 2));
	ASSERT_EQ(size[1], 128);
	ASSERT_CU_ERR(cuFileSetParameterPosixPoolSlabArray(kb, n, 0), CU_FILE_INVALID_VALUE);
	ASSERT_CU(cuFileSetParameterGpuBounceBufferSlabArray(kb, n, 2));
	ASSERT_CU(cuFileGetParameterGpuBounceBufferSlabArray(size, count, 2));
	ASSERT_EQ(count[1], 2);
}

TEST(broken_and_missing_files_are_survived)
{
	int fd;

	json("{ \"properties\": { \"io_batchsize\": 64,\n oops");
	setenv("CUFILE_LOGGING_LEVEL", "WARN", 1);
	ASSERT_CU(cuFileDriverOpen());
	ASSERT_TRUE(log_has("cufile.json:2: is not JSON"));
	ASSERT_CU(cuFileDriverClose());
	setenv("CUFILE_ENV_PATH_JSON", "$PWD/local_cufile.json", 1);
	ASSERT_CU(cuFileDriverOpen());
	ASSERT_TRUE(log_has("$PWD/local_cufile.json: No such file"));
	handle_new(make_file("file", 10, 1), O_RDONLY, &fd);
}

/* Without errors no log file is created. At INFO it has the route of each file. */
TEST(log_has_the_route_of_files)
{
	int fd;

	ASSERT_EQ(chdir(test_dir()), 0);
	unsetenv("CUFILE_LOGFILE_PATH");
	unsetenv("CUFILE_LOGGING_LEVEL");
	setenv("CUFILE_ENV_PATH_JSON", "/nonexistent", 1);
	handle_free(handle_new(make_file("file", 10, 1), O_RDONLY, &fd), fd);
	ASSERT_CU(cuFileDriverClose());
	ASSERT_EQ(access("cufile.log", F_OK), -1);
	setenv("CUFILE_LOGFILE_PATH", test_path("log"), 1);
	setenv("CUFILE_LOGGING_LEVEL", "INFO", 1);
	handle_free(handle_new(test_path("file"), O_RDONLY, &fd), fd);
	ASSERT_TRUE(log_has("to emu:0: route "));
	ASSERT_EQ(access("cufile.log", F_OK), -1);
}

TEST(compat_mode_forbidden)
{
	CUfileHandle_t fh;

	setenv("CUFILE_ALLOW_COMPAT_MODE", "false", 1);
	setenv("CUFILE_LOGFILE_PATH", test_path("log"), 1);
	ASSERT_CU_ERR(handle_try(open(make_file("file", 10, 1), O_RDONLY), &fh), CU_FILE_IO_NOT_SUPPORTED);
	ASSERT_TRUE(log_has("allow_compat_mode is false"));
}

/* Every parameter has a setting, so that it can be reported by name. */
TEST(every_parameter_has_a_setting)
{
	for (int i = 0; i <= CUFILE_PARAM_PROPERTIES_BATCH_IO_TIMEOUT_MS; i++)
		ASSERT_TRUE(setting_by_param(SETTING_NUMBER, i) != NULL);
	for (int i = 0; i <= CUFILE_PARAM_PROPERTIES_POSIX_IO_MODE; i++)
		ASSERT_TRUE(setting_by_param(SETTING_BOOL, i) != NULL);
	ASSERT_STREQ(setting_by_param(SETTING_NUMBER, CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE)->path,
		     "properties.io_batchsize");
}

/* A pattern stands for what no row before it names; nothing is listed twice. */
TEST(settings_are_found_by_path)
{
	const struct setting *s, *t;

	ASSERT_EQ(setting_effect("logging.level"), SETTING_IN_FORCE);
	ASSERT_EQ(setting_effect("logging.size"), SETTING_IGNORED);
	ASSERT_EQ(setting_effect("properties.rdma_peer_type"), SETTING_IGNORED);
	ASSERT_EQ(setting_effect("properties.rdm"), SETTING_UNKNOWN);
	ASSERT_EQ(setting_effect("fs"), SETTING_UNKNOWN);
	ASSERT_EQ(setting_env_effect("CUFILE_ENV_PATH_JSON"), SETTING_IN_FORCE);
	ASSERT_EQ(setting_env_effect("CUFILE_NVTX"), SETTING_REPORTED);
	for (size_t i = 0; (s = setting_at(i)); i++)
		for (size_t k = i + 1; (t = setting_at(k)); k++) {
			ASSERT_FALSE(s->path && t->path && !strcmp(s->path, t->path));
			ASSERT_FALSE(s->env && t->env && !strcmp(s->env, t->env));
		}
}
