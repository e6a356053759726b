# What users link, longspec::longspec, and its installation: headers, libraries and a package for find_package(longspec).
#
# The libraries installed are the engine's module and all below it; programs and the modules only they use are not.

# All longspec_* modules that `targets` need, through any number of steps.
function(longspec_reachable result)
  set(reached "")
  set(pending ${ARGN})
  while(pending)
    list(POP_FRONT pending target)
    list(APPEND reached ${target})
    get_target_property(links ${target} LINK_LIBRARIES)
    foreach(link IN LISTS links)
      if(link MATCHES "^longspec_" AND NOT link STREQUAL "longspec_warnings"
         AND NOT link IN_LIST reached AND NOT link IN_LIST pending)
        list(APPEND pending ${link})
      endif()
    endforeach()
  endwhile()
  set(${result} ${reached} PARENT_SCOPE)
endfunction()

if(NOT TARGET longspec_engine)
  return()
endif()

longspec_reachable(longspec_installed longspec_engine)

add_library(longspec_public INTERFACE)
add_library(longspec::longspec ALIAS longspec_public)
target_include_directories(longspec_public INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(longspec_public INTERFACE cxx_std_20)
target_link_libraries(longspec_public INTERFACE longspec_engine)

# Only packages that the installed libraries link are asked for where they are used.
set(LONGSPEC_DEPENDENCIES "find_dependency(Threads)\n")
set(uses "")
foreach(target IN LISTS longspec_installed)
  get_target_property(links ${target} LINK_LIBRARIES)
  list(APPEND uses ${links})
endforeach()
if("nlohmann_json::nlohmann_json" IN_LIST uses)
  string(APPEND LONGSPEC_DEPENDENCIES "find_dependency(nlohmann_json)\n")
endif()
if("PkgConfig::PCRE2" IN_LIST uses)
  string(APPEND LONGSPEC_DEPENDENCIES
    "find_dependency(PkgConfig)\npkg_check_modules(PCRE2 REQUIRED QUIET IMPORTED_TARGET libpcre2-8)\n")
endif()

include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/longspec)
configure_package_config_file(cmake/longspecConfig.cmake.in ${PROJECT_BINARY_DIR}/longspecConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/longspecConfigVersion.cmake COMPATIBILITY SameMinorVersion)

set_target_properties(longspec_public PROPERTIES EXPORT_NAME longspec)
install(TARGETS longspec_public ${longspec_installed} EXPORT longspec_targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/longspec DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT longspec_targets FILE longspecTargets.cmake NAMESPACE longspec:: DESTINATION ${package_dir})
install(FILES ${PROJECT_BINARY_DIR}/longspecConfig.cmake ${PROJECT_BINARY_DIR}/longspecConfigVersion.cmake
  DESTINATION ${package_dir})
