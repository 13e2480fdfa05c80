# cmake --install gives a tree that can be moved and copied to other machines of the kind:
#   bin/trireme   lib/trireme/ (Kokkos, where it is the prebuilt one)   share/trireme/
# The build tree has bin/ and share/trireme/ the same way, so that the program finds its
# files by ../share/trireme in both.

# GPT-2's vocabulary, put under .deps/ by tools/bootstrap.
set(_gpt2 ${TRIREME_DEPS}/gpt2)
if(EXISTS ${_gpt2}/encoder.json AND EXISTS ${_gpt2}/vocab.bpe)
  file(COPY ${_gpt2}/encoder.json ${_gpt2}/vocab.bpe
       DESTINATION ${PROJECT_BINARY_DIR}/share/trireme/gpt2)
  install(FILES ${_gpt2}/encoder.json ${_gpt2}/vocab.bpe DESTINATION share/trireme/gpt2)
else()
  message(STATUS "No GPT-2 vocabulary in ${_gpt2}: `trireme tokenize --tokenizer gpt2` will "
                 "ask for files (tools/bootstrap gets them)")
endif()

# What `trireme jobscript` reads, and what its jobs call: the tree's own, so that a change there
# is one here.
foreach(directory slurm tools)
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${directory}
       ${PROJECT_BINARY_DIR}/share/trireme/${directory} COPY_ON_ERROR SYMBOLIC)
endforeach()

# What the prebuilt Kokkos consists of. Its libraries look for each other beside themselves.
if(TRIREME_KOKKOS_FROM_WHEEL)
  get_filename_component(_wheel_root "${Kokkos_DIR}/../../../.." ABSOLUTE)
  file(GLOB _wheel_libraries
       "${_wheel_root}/pygenten/lib64/libkokkos*.so.[0-9].[0-9]"
       "${_wheel_root}/pygenten/lib64/libkokkoskernels.so"
       "${_wheel_root}/pygenten.libs/libgomp-*" "${_wheel_root}/pygenten.libs/libopenblas*"
       "${_wheel_root}/pygenten.libs/libgfortran-*"
       "${_wheel_root}/pygenten.libs/libquadmath-*")
  install(PROGRAMS ${_wheel_libraries} DESTINATION lib/trireme)
endif()

if(TARGET trireme)
  install(TARGETS trireme RUNTIME DESTINATION bin)
  # Kokkos of a module or of Spack stays where it is; its directory is in the RPATH then.
  set(_run_path "$ORIGIN/../lib/trireme" ${TRIREME_RUN_PATH})  # no empty entry on host cores
  set_target_properties(trireme PROPERTIES INSTALL_RPATH "${_run_path}")
  if(NOT TRIREME_KOKKOS_FROM_WHEEL)
    set_target_properties(trireme PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  endif()
endif()

foreach(directory inputs slurm docs)
  if(IS_DIRECTORY ${PROJECT_SOURCE_DIR}/${directory})
    install(DIRECTORY ${directory} DESTINATION share/trireme USE_SOURCE_PERMISSIONS)
  endif()
endforeach()
# What the installed pages tell their readers to call; slurm/ has the others.
install(PROGRAMS tools/plot_curve tools/plot_trace tools/report tools/scaling
        DESTINATION share/trireme/tools)
install(FILES tools/plot_axes.py DESTINATION share/trireme/tools)
install(DIRECTORY tools/report_page DESTINATION share/trireme/tools FILES_MATCHING PATTERN "*.py")
# With all that README.md links to.
install(FILES README.md CHANGELOG.md LICENSE CITATION.cff CONTRIBUTING.md
        DESTINATION share/trireme)
install(FILES perf/README.md DESTINATION share/trireme/perf)
install(DIRECTORY perf/report DESTINATION share/trireme/perf USE_SOURCE_PERMISSIONS)
